# SPDX-License-Identifier: Apache-2.0
"""Byte-level vectors printed by Paimon's Java classes (`data/vectors.json`).

A kind that nobody claims fails.
"""

import collections
import json
import pathlib

import numpy as np
import pyarrow as pa
import pyroaring
import pytest

from storage.errors import UnsupportedFeatureError
from storage.format.index import deletion_vector
from storage.format.index.builder import (
    BITMAP,
    BLOOM,
    BSI,
    RANGE_BITMAP,
    FileIndexSpec,
    encode_container,
    open_index,
    read_container,
)
from storage.format.index.hashing import hash_column
from storage.format.index.hashing import parameters as bloom_parameters
from storage.format.index.values import MemorySource, Window
from storage.format.metadata.file_meta import EMPTY_ROW, EMPTY_STATS, FileKind
from storage.format.metadata.layout import escape, partition_path
from storage.format.row.binary_row import decode_row, encode_row, encode_rows, frame
from storage.format.row.bucket import assign_buckets, hash_rows, murmur_rows
from storage.format.row.row_codec import encode_array, from_row_values, to_row_values
from storage.format.row.stats import StatsMode
from storage.format.types.types import (
    KEY_FIELD_ID_START,
    SEQUENCE_NUMBER_FIELD_ID,
    VALUE_KIND_FIELD_ID,
    DataField,
    RowKind,
    parse_type,
    type_name,
    type_to_json,
)
from storage.lsm.key_order import sort_permutation
from storage.options.options import TableOptions
from tests.golden.json_values import golden_type, row_value
from tests.unit.storage.column_stats import collect

PATH = pathlib.Path(__file__).parent / "data" / "vectors.json"
VECTORS = json.loads(PATH.read_text(encoding="utf-8"))["vectors"]


def vectors(kind):
    return [pytest.param(v, id=v["id"]) for v in VECTORS if v["kind"] == kind]


def row_of(vector):
    types = [golden_type(type_) for type_ in vector["types"]]
    values = [row_value(v, t) for v, t in zip(vector["values"], types, strict=True)]
    return types, values, [from_row_values([v], t) for v, t in zip(values, types, strict=True)]


@pytest.mark.parametrize("vector", vectors("binary_row"))
def test_one_row_becomes_the_bytes_java_writes_and_back(vector):
    types, values, _ = row_of(vector)
    framed = encode_row(values, types)
    assert framed.hex() == vector["expected"]["hex"]
    assert encode_row(decode_row(framed, types), types) == framed


@pytest.mark.parametrize("vector", vectors("binary_row"))
def test_columns_become_the_bytes_java_writes(vector):
    types, values, columns = row_of(vector)
    if not types:
        pytest.skip("a row without fields needs no columns: EMPTY_ROW")
    (row,) = encode_rows(columns, types).to_pylist()
    assert frame(row, len(types)).hex() == vector["expected"]["hex"]
    again = [to_row_values(c, t)[0] for c, t in zip(columns, types, strict=True)]
    assert encode_row(again, types) == encode_row(values, types)


@pytest.mark.parametrize("vector", vectors("binary_row"))
def test_rows_hash_and_fall_into_buckets_as_in_java(vector):
    types, _, columns = row_of(vector)
    expected = vector["expected"]
    if not types:
        assert murmur_rows(np.zeros((1, 8), np.uint8)).tolist() == [expected["hash"]]
        return
    assert hash_rows(columns, types).tolist() == [expected["hash"]]
    for count in (5, 16):
        assert assign_buckets(columns, types, count).tolist() == [expected[f"bucket_{count}"]]
    if expected["hive_bucket_16"] is None:
        with pytest.raises(UnsupportedFeatureError, match="hive"):
            assign_buckets(columns, types, 16, "hive")
    else:
        buckets = assign_buckets(columns, types, 16, "hive").tolist()
        assert buckets == [expected["hive_bucket_16"]]
    if "mod_bucket_5" in expected:
        buckets = assign_buckets(columns, types, 5, "mod").tolist()
        assert buckets == [expected["mod_bucket_5"]]


def test_rows_of_one_batch_are_encoded_independently():
    groups = collections.defaultdict(list)
    for vector in VECTORS:
        if vector["kind"] == "binary_row" and vector["types"]:
            groups[json.dumps(vector["types"])].append(vector)
    assert any(len(group) > 5 for group in groups.values())
    for group in groups.values():
        types = [golden_type(type_) for type_ in group[0]["types"]]
        rows = [[row_value(v, t) for v, t in zip(x["values"], types, strict=True)] for x in group]
        # the batch is a slice of a longer one, as batches often are
        columns = [
            from_row_values([row[i] for row in rows[:1] + rows + rows[:1]], type_)[1:-1]
            for i, type_ in enumerate(types)
        ]
        encoded = [frame(row, len(types)).hex() for row in encode_rows(columns, types).to_pylist()]
        assert encoded == [vector["expected"]["hex"] for vector in group]
        hashes = hash_rows(columns, types).tolist()
        assert hashes == [vector["expected"]["hash"] for vector in group]


@pytest.mark.parametrize("vector", vectors("binary_array"))
def test_array(vector):
    values, element = vector["values"], parse_type(vector["element"])
    assert encode_array(values, element).hex() == vector["expected"]["hex"]


@pytest.mark.parametrize("vector", vectors("murmur_bytes"))
def test_murmur(vector):
    data = bytes.fromhex(vector["bytes"])
    rows = np.frombuffer(data, np.uint8).reshape(1, len(data))
    (found,) = murmur_rows(rows).tolist()
    # the vector of no bytes was printed without its sign bit
    assert (found if data else found & 0x7FFFFFFF) == vector["expected"]["hash"]


@pytest.mark.parametrize("vector", vectors("partition_path"))
def test_partition_directory(vector):
    field = DataField(id=0, name=vector["column"], type=parse_type(vector["type"]))
    value = row_value(vector["value"], field.type)
    expected = vector["expected"]
    assert encode_row([value], [field.type]).hex() == expected["row_hex"]
    assert partition_path([value], [field]) + "/" == expected["legacy"]
    assert partition_path([value], [field], legacy=False) + "/" == expected["cast"]
    assert expected["legacy"].startswith(escape(vector["column"]))


@pytest.mark.parametrize("vector", vectors("stats_truncate"))
def test_statistics(vector):
    type_ = parse_type(vector["type"])
    values = [row_value(value, type_) for value in vector["values"]]
    stats = collect([from_row_values(values, type_)], [type_], StatsMode.parse(vector["mode"]))
    expected = vector["expected"]
    assert stats.null_counts == (expected["null_count"],)
    assert stats.min_values == encode_row([row_value(expected["min"], type_)], [type_])
    assert stats.max_values == encode_row([row_value(expected["max"], type_)], [type_])


@pytest.mark.parametrize("vector", vectors("type_json"))
def test_type(vector):
    if vector["type"] in ("VARIANT", "BLOB"):
        with pytest.raises(UnsupportedFeatureError, match=vector["type"]):
            parse_type(vector["type"])
        return
    type_ = parse_type(vector["type"])
    assert type_to_json(type_) == vector["expected"]["json"]
    assert type_name(type_) == vector["expected"]["sql"]
    assert parse_type(type_to_json(type_)) == type_


@pytest.mark.parametrize("vector", vectors("key_order"))
def test_key_order(vector):
    type_ = parse_type(vector["type"])
    values = [row_value(value, type_) for value in vector["values"]]
    batch = pa.record_batch({"k": from_row_values(values, type_)})
    expected = [row_value(value, type_) for value in vector["expected"]["sorted"]]
    ordered = [values[i] for i in sort_permutation(batch, ["k"])]
    assert list(map(repr, ordered)) == list(map(repr, expected))  # NaN equals itself as text only


@pytest.mark.parametrize("vector", vectors("empty_stats"))
def test_empty_statistics(vector):
    assert EMPTY_ROW.hex() == vector["expected"]["hex"]
    assert EMPTY_STATS.min_values == EMPTY_STATS.max_values == encode_row([], [])


@pytest.mark.parametrize("vector", vectors("constants"))
def test_constants(vector):
    expected = vector["expected"]
    assert expected["key_field_id_base"] == KEY_FIELD_ID_START
    assert expected["sequence_number_field_id"] == SEQUENCE_NUMBER_FIELD_ID
    assert expected["value_kind_field_id"] == VALUE_KIND_FIELD_ID
    assert expected["row_kind_bytes"] == {kind.short: kind.value for kind in RowKind}
    assert (FileKind.ADD, FileKind.DELETE) == (0, 1)


@pytest.mark.parametrize("vector", vectors("deletion_vector"))
def test_deletion_vector(vector):
    positions = {*vector["positions"], *range(*vector.get("range", (0, 0)))}
    expected = vector["expected"]
    encoded = deletion_vector.encode(pyroaring.BitMap64(positions), vector["bitmap64"])
    assert encoded.hex() == expected["hex"]
    assert deletion_vector.recorded_length(encoded) == expected["manifest_length"]
    decoded = deletion_vector.decode(encoded, length=expected["manifest_length"])
    assert (set(decoded), len(decoded)) == (positions, expected["cardinality"])


@pytest.mark.parametrize("vector", vectors("dv_index_file"))
def test_deletion_vector_file(vector):
    entries = vector["expected"]["entries"]
    kind = pyroaring.BitMap64 if vector["bitmap64"] else pyroaring.BitMap
    files = {str(n): kind(entry["positions"]) for n, entry in enumerate(entries)}
    data, metas = deletion_vector.encode_file(files)
    assert data.hex() == vector["expected"]["hex"]
    for entry, meta in zip(entries, metas, strict=True):
        assert meta.length == entry["length"]
        assert meta.offset == entry.get("offset", meta.offset)
        content = data[meta.offset :]
        assert list(deletion_vector.decode(content, length=meta.length)) == entry["positions"]


@pytest.mark.parametrize("vector", vectors("hash_index_file"))
def test_hash_index_file(vector):
    hashes = np.array(vector["hashes"], np.int32)
    data = deletion_vector.encode_hashes(hashes)
    assert data.hex() == vector["expected"]["hex"]
    assert deletion_vector.decode_hashes(data).tolist() == vector["hashes"]


INDEX_TYPE = {
    "bloom_filter": BLOOM,
    "bitmap": BITMAP,
    "bsi": BSI,
    "range_bitmap": RANGE_BITMAP,
}


@pytest.mark.parametrize("vector", vectors("index_hash"))
def test_hash_of_bloom_filters(vector):
    type_ = parse_type(vector["type"])
    column = from_row_values([row_value(vector["value"], type_)], type_)
    hashes, valid = hash_column(column, type_)
    assert [f"{value:016x}" for value in hashes.tolist()] == [vector["expected"]["hex"]]
    assert valid.tolist() == [True]


@pytest.mark.parametrize("vector", vectors("bloom_params"))
def test_size_of_bloom_filters(vector):
    expected = vector["expected"]
    found = bloom_parameters(vector["items"], vector["fpp"])
    assert found == (expected["bits"], expected["hash_functions"])


@pytest.mark.parametrize("vector", [v for kind in INDEX_TYPE for v in vectors(kind)])
def test_file_index(vector):
    type_ = parse_type(vector["type"])
    values = [row_value(value, type_) for value in vector["values"]]
    column = from_row_values(values, type_)
    index_type = INDEX_TYPE[vector["kind"]]
    options = {f"file-index.{index_type}.columns": "c"}
    for name, value in vector.get("options", {}).items():
        options[f"file-index.{index_type}.c.{name}"] = value
    (spec,) = FileIndexSpec.of(TableOptions.from_strings(options))
    for cut in {0, len(values) // 2}:
        builder = spec.builder(type_)
        builder.add(column[:cut])
        builder.add(column[cut:])
        payload = builder.finish()
        assert payload.hex() == vector["expected"]["hex"]
    reader = open_index(index_type, Window(MemorySource(payload, "p"), 0, len(payload)), type_)
    nulls = {row for row, value in enumerate(values) if value is None}
    if index_type != BLOOM:
        assert set(reader.null_rows()) == nulls
        assert set(reader.valid_rows()) == set(range(len(values))) - nulls
    for value in values:
        if value is not None:
            found = reader.equal_to(from_row_values([value], type_))
            same = {row for row, other in enumerate(values) if other == value}
            assert found is None if index_type == BLOOM else set(found) == same


@pytest.mark.parametrize("vector", vectors("index_container"))
def test_file_index_container(vector):
    payloads = {
        "bloom INT items 10 fpp 0.1 of 1,2,3": bytes.fromhex("00000003892001504000"),
        "bsi INT of 1,2": _bsi_of_1_and_2(),
        None: None,
    }
    columns = {
        column["name"]: {index["type"]: payloads[index["payload"]] for index in column["indexes"]}
        for column in vector["columns"]
    }
    data = encode_container(columns)
    assert data.hex() == vector["expected"]["hex"]
    assert int.from_bytes(data[12:16], "big") == vector["expected"]["head_length"]
    assert read_container(MemorySource(data, "p")).payloads() == columns


def _bsi_of_1_and_2():
    type_ = parse_type("INT")
    builder = FileIndexSpec(BSI, "c").builder(type_)
    builder.add(from_row_values([1, 2], type_))
    return builder.finish()


@pytest.mark.parametrize("kind", sorted({vector["kind"] for vector in VECTORS}))
def test_every_kind_is_claimed(kind):
    assert kind in {
        *INDEX_TYPE,
        "binary_array",
        "binary_row",
        "bloom_params",
        "constants",
        "deletion_vector",
        "dv_index_file",
        "empty_stats",
        "hash_index_file",
        "index_container",
        "index_hash",
        "key_order",
        "murmur_bytes",
        "partition_path",
        "stats_truncate",
        "type_json",
    }
