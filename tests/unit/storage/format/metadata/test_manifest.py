# SPDX-License-Identifier: Apache-2.0
"""Manifest codec against FORMAT.md §4 and files of the Java writer; folding; the store's cache."""

import contextlib
import io
import json
import pickle
import zlib

import fastavro
import msgspec
import pytest

from storage.clock import RandomIds, SeededIds
from storage.errors import CorruptDataError, UnsupportedFeatureError
from storage.format.avro.container import ContainerWriter, read_records
from storage.format.metadata.file_meta import (
    EMPTY_ROW,
    EMPTY_STATS,
    DataFileMeta,
    FileKind,
    ManifestEntry,
    SimpleStats,
)
from storage.format.metadata.layout import TableLayout
from storage.format.metadata.manifest import (
    ENTRY_SCHEMA,
    META_SCHEMA,
    ManifestFileMeta,
    decode_entries,
    decode_metas,
    encode_metas,
    entry_record,
    entry_schema,
    fold,
    merge_entries,
)
from storage.format.metadata.manifest_store import ManifestStore, clear_manifest_cache
from storage.format.row.row_codec import decode_row, encode_row
from storage.format.types.types import parse_type
from storage.io.local import LocalFileIO
from tests.faulty_io import FaultyFileIO
from tests.unit.storage.golden_tables import CASES, GoldenTable

STATS = (
    '{"type":"record","name":"%s","fields":[{"name":"_MIN_VALUES","type":"bytes"},'
    '{"name":"_MAX_VALUES","type":"bytes"},{"name":"_NULL_COUNTS","type":["null",'
    '{"type":"array","items":["null","long"]}],"default":null}]}'
)
# FORMAT.md §4.4, with the line breaks taken out
ENTRY_SCHEMA_TEXT = (
    '{"type":"record","name":"record","namespace":"org.apache.paimon.avro.generated","fields":['
    '{"name":"_VERSION","type":"int"},{"name":"_KIND","type":"int"},'
    '{"name":"_PARTITION","type":"bytes"},'
    '{"name":"_BUCKET","type":"int"},{"name":"_TOTAL_BUCKETS","type":"int"},'
    '{"name":"_FILE","type":{"type":"record","name":"record__FILE","fields":['
    '{"name":"_FILE_NAME","type":"string"},{"name":"_FILE_SIZE","type":"long"},'
    '{"name":"_ROW_COUNT","type":"long"},'
    '{"name":"_MIN_KEY","type":"bytes"},{"name":"_MAX_KEY","type":"bytes"},'
    '{"name":"_KEY_STATS","type":' + STATS % "record__FILE__KEY_STATS" + "},"
    '{"name":"_VALUE_STATS","type":' + STATS % "record__FILE__VALUE_STATS" + "},"
    '{"name":"_MIN_SEQUENCE_NUMBER","type":"long"},{"name":"_MAX_SEQUENCE_NUMBER","type":"long"},'
    '{"name":"_SCHEMA_ID","type":"long"},{"name":"_LEVEL","type":"int"},'
    '{"name":"_EXTRA_FILES","type":{"type":"array","items":"string"}},'
    '{"name":"_CREATION_TIME","type":["null",{"type":"long","logicalType":"timestamp-millis"}],'
    '"default":null},'
    '{"name":"_DELETE_ROW_COUNT","type":["null","long"],"default":null},'
    '{"name":"_EMBEDDED_FILE_INDEX","type":["null","bytes"],"default":null},'
    '{"name":"_FILE_SOURCE","type":["null","int"],"default":null},'
    '{"name":"_VALUE_STATS_COLS","type":["null",{"type":"array","items":"string"}],'
    '"default":null},'
    '{"name":"_EXTERNAL_PATH","type":["null","string"],"default":null}]}}]}'
)


def encode_entries(entries):
    """One manifest file with these entries, in this order."""
    writer = ContainerWriter(entry_schema(entries))
    for entry_ in entries:
        writer.append(entry_record(entry_))
    return writer.finish()


def _read(store, meta):
    return next(store.read_manifests([meta]))


def file_named(name, **changes):
    meta = DataFileMeta(
        file_name=name,
        file_size=1000,
        row_count=10,
        min_key=b"\x00\x00\x00\x01low",
        max_key=b"\x00\x00\x00\x01high",
        key_stats=SimpleStats(b"a", b"b", (0, None)),
        value_stats=SimpleStats(b"c", b"d", (1, 2, None)),
        min_sequence_number=5,
        max_sequence_number=2**62,
        schema_id=3,
        level=0,
        creation_time_ms=1_700_000_000_123,
        delete_row_count=0,
        file_source=0,
    )
    return msgspec.structs.replace(meta, **changes)


def entry(name, kind=FileKind.ADD, partition=EMPTY_ROW, bucket=0, **changes):
    return ManifestEntry(
        kind=kind,
        partition=partition,
        bucket=bucket,
        total_buckets=4,
        file=file_named(name, **changes),
    )


def metadata_schema(data):
    start = data.index(b"{", data.index(b"avro.schema"))
    text = data[start:].decode("latin1")
    return text[: json.JSONDecoder().raw_decode(text)[1]]


def test_schema_text_is_the_one_java_writes():
    assert ENTRY_SCHEMA == ENTRY_SCHEMA_TEXT
    assert metadata_schema(encode_entries([entry("a")])) == ENTRY_SCHEMA_TEXT


def test_schema_texts_are_prefixes_of_the_newest_java_layout():
    golden = GoldenTable("pk_dedup_fixed")
    java_entry = json.loads(metadata_schema(golden.manifests()[0].read_bytes()))
    ours = json.loads(ENTRY_SCHEMA)
    java_fields = java_entry["fields"][-1]["type"]["fields"]
    our_fields = ours["fields"][-1]["type"]["fields"]
    assert our_fields == java_fields[: len(our_fields)]
    java_meta = json.loads(metadata_schema(golden.manifest_lists()[0].read_bytes()))
    our_meta = json.loads(META_SCHEMA)
    assert our_meta["fields"] == java_meta["fields"][: len(our_meta["fields"])]


def test_the_header_names_only_schema_and_codec():
    data = encode_entries([])
    assert data.startswith(b"Obj\x01\x04\x16avro.schema")
    assert b"\x14avro.codec\x12zstandard\x00" in data


@pytest.mark.parametrize("case", CASES)
def test_manifests_of_java_decode_and_encode_to_the_same_values(case):
    golden = GoldenTable(case)
    assert golden.manifests()
    for path in golden.manifests():
        entries = decode_entries(path.read_bytes())
        assert entries
        assert decode_entries(encode_entries(entries)) == entries
    for path in golden.manifest_lists():
        metas = decode_metas(path.read_bytes())
        assert decode_metas(encode_metas(metas)) == metas


@pytest.mark.parametrize("case", CASES)
def test_folding_a_snapshot_of_java_gives_the_files_java_lists(case):
    golden = GoldenTable(case)
    root = golden.root
    store = ManifestStore(LocalFileIO(), TableLayout(str(root)), SeededIds(0))
    expected = json.loads((root.parent / "expected" / "files.json").read_text())
    for path in sorted((root / "snapshot").glob("snapshot-*")):
        snapshot = json.loads(path.read_bytes())
        if str(snapshot["id"]) not in expected:
            continue
        names = (snapshot["baseManifestList"], snapshot["deltaManifestList"])
        metas = [meta for name in names for meta in store.read_list(name)]
        entries = [e for meta in metas for e in _read(store, meta)]
        live = {(e.file.file_name, e.bucket, e.file.level, e.file.row_count) for e in fold(entries)}
        files = expected[str(snapshot["id"])]["files"]
        assert live == {(f["name"], f["bucket"], f["level"], f["rows"]) for f in files}
        assert sum(meta.num_added_files + meta.num_deleted_files for meta in metas) == len(entries)


def test_all_fields_survive():
    full = entry(
        "data-1.parquet",
        partition=b"\x00\x00\x00\x01p",
        bucket=-2,
        extra_files=("data-1.parquet.index",),
        embedded_index=b"\x00\x01",
        value_stats_cols=("a", "b"),
        external_path="s3://b/data-1.parquet",
        first_row_id=7,
        write_cols=("a",),
    )
    bare = entry("x", FileKind.DELETE, creation_time_ms=None, delete_row_count=None,
                 file_source=None, value_stats_cols=(), level=5)  # fmt: skip
    assert decode_entries(encode_entries([full, bare])) == (full, bare)


def test_equal_entries_give_equal_bytes():
    assert encode_entries([entry("a")]) == encode_entries([entry("a")])


def test_many_entries_span_several_blocks_in_order():
    entries = [entry(f"data-{i}.parquet", bucket=i % 7) for i in range(3000)]
    data = encode_entries(entries)
    assert decode_entries(data) == tuple(entries)


def test_older_layouts_read_with_nulls_and_unknown_fields_are_skipped():
    schema = json.loads(ENTRY_SCHEMA)
    file_schema = schema["fields"][-1]["type"]
    file_schema["fields"] = file_schema["fields"][:15]
    file_schema["fields"].append({"name": "_SOMETHING_NEW", "type": ["null", "string"]})
    file_schema["name"] = "DataFileMeta"
    record = entry_record(entry("a"))
    record["_FILE"]["_SOMETHING_NEW"] = "x"
    writer = ContainerWriter(json.dumps(schema))
    writer.append(record)
    (read,) = decode_entries(writer.finish())
    assert read.file == file_named("a", file_source=None)


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "xz", "snappy"])
def test_other_codecs_read(codec):
    expected = [entry(f"data-{i}") for i in range(50)]
    out = io.BytesIO()
    records = [
        {**(r := entry_record(e)), "_FILE": {k: _listed(v) for k, v in r["_FILE"].items()}}
        for e in expected
    ]
    fastavro.writer(out, json.loads(ENTRY_SCHEMA), records, codec=codec)
    assert decode_entries(out.getvalue()) == tuple(expected)


def _listed(value):
    if isinstance(value, dict):
        return {key: _listed(item) for key, item in value.items()}
    return list(value) if isinstance(value, tuple) else value


def test_an_unknown_record_version_is_corrupt():
    writer = ContainerWriter(ENTRY_SCHEMA)
    writer.append({**entry_record(entry("a")), "_VERSION": 3})
    with pytest.raises(CorruptDataError, match="version"):
        decode_entries(writer.finish())


def test_a_missing_required_field_is_corrupt():
    schema = json.loads(META_SCHEMA)
    del schema["fields"][1]
    writer = ContainerWriter(json.dumps(schema))
    meta = ManifestFileMeta(file_name="m", file_size=1, num_added_files=1, num_deleted_files=0,
                            partition_stats=EMPTY_STATS, schema_id=0)  # fmt: skip
    (record,) = read_records(encode_metas([meta]))
    writer.append(record)
    with pytest.raises(CorruptDataError, match="_FILE_NAME"):
        decode_metas(writer.finish(), source="somewhere")


@pytest.mark.parametrize("cut", [0, 3, 40, 700, -1, -17, -60])
def test_damaged_files_are_corrupt_and_name_the_path(cut):
    data = encode_entries([entry("a"), entry("b")])
    with pytest.raises(CorruptDataError, match="/m/manifest-1"):
        decode_entries(data[:cut], source="/m/manifest-1")


def test_flipped_bits_raise_nothing_but_errors_of_ours():
    data = bytearray(encode_entries([entry("a")]))
    header = data.index(b"zstandard")
    for position in range(header, len(data), 7):
        damaged = bytearray(data)
        damaged[position] ^= 0x40
        with contextlib.suppress(CorruptDataError, UnsupportedFeatureError):
            decode_entries(bytes(damaged))


def test_column_sequences_are_refused_because_a_rewrite_would_lose_them():
    schema = json.loads(ENTRY_SCHEMA)
    schema["fields"][-1]["type"]["fields"].append(
        {"name": "_WRITE_COLS_SEQUENCES", "type": ["null", {"type": "array", "items": "long"}]}
    )
    record = entry_record(entry("a"))
    record["_FILE"]["_WRITE_COLS_SEQUENCES"] = [1, 2]
    writer = ContainerWriter(json.dumps(schema))
    writer.append(record)
    with pytest.raises(UnsupportedFeatureError):
        decode_entries(writer.finish())


class TestFolding:
    def test_a_delete_cancels_its_add(self):
        entries = [entry("a"), entry("b"), entry("a", FileKind.DELETE)]
        assert fold(entries) == [entry("b")]
        assert merge_entries(entries) == [entry("b")]

    def test_an_unmatched_delete_stays_when_merging_and_is_ignored_when_folding(self):
        entries = [entry("b"), entry("a", FileKind.DELETE)]
        assert merge_entries(entries) == entries
        assert fold(entries) == [entry("b")]

    def test_an_upgrade_is_another_file(self):
        upgraded = entry("a", level=5)
        assert fold([entry("a"), entry("a", FileKind.DELETE), upgraded]) == [upgraded]

    @pytest.mark.parametrize("other", [{"bucket": 1}, {"partition": b"p"}])
    def test_the_same_name_elsewhere_is_another_file(self, other):
        entries = [entry("a"), entry("a", **other)]
        assert fold([*entries, entry("a", FileKind.DELETE)]) == entries[1:]

    def test_adding_a_file_twice_is_corrupt(self):
        with pytest.raises(CorruptDataError, match="already added"):
            fold([entry("a"), entry("a")])


@pytest.fixture
def table(tmp_path):
    clear_manifest_cache()
    file_io = FaultyFileIO(LocalFileIO(durable=False))
    store = ManifestStore(file_io, TableLayout(str(tmp_path)), SeededIds(1))
    return file_io, store


class TestStore:
    def test_manifests_describe_their_entries(self, table):
        _, store = table
        entries = [
            entry("a", bucket=3, level=2),
            entry("b", FileKind.DELETE, bucket=1, schema_id=9),
        ]
        (meta,) = store.write_manifests(entries, 1 << 20)
        assert meta == ManifestFileMeta(
            file_name=meta.file_name,
            file_size=meta.file_size,
            num_added_files=1,
            num_deleted_files=1,
            partition_stats=EMPTY_STATS,
            schema_id=9,
            min_bucket=1,
            max_bucket=3,
            min_level=0,
            max_level=2,
        )
        clear_manifest_cache()
        assert _read(store, meta) == tuple(entries)

    def test_no_entries_make_no_manifest_but_a_valid_list(self, table):
        _, store = table
        assert store.write_manifests([], 1000) == []
        name, size = store.write_list([])
        clear_manifest_cache()
        assert store.read_list(name) == ()
        assert size > 0

    def test_manifests_roll_at_the_target_size(self, table, tmp_path):
        _, store = table
        entries = [
            entry(f"data-{i}", embedded_index=zlib.compress(b"%d" % i * i)) for i in range(4000)
        ]
        metas = store.write_manifests(entries, 30_000)
        assert len(metas) > 2
        assert all(meta.file_size < 90_000 for meta in metas)
        for meta in metas:
            assert (tmp_path / "manifest" / meta.file_name).stat().st_size == meta.file_size
        clear_manifest_cache()
        assert [e for meta in metas for e in _read(store, meta)] == entries

    def test_names_count_per_kind_and_copies_take_a_new_uuid(self, tmp_path):
        store = ManifestStore(LocalFileIO(), TableLayout(str(tmp_path)), RandomIds())
        (first,) = store.write_manifests([entry("a")], 1000)
        (second,) = store.write_manifests([entry("b")], 1000)
        name, _ = store.write_list([first])
        uuid = first.file_name[len("manifest-") : -2]
        assert first.file_name == f"manifest-{uuid}-0"
        assert second.file_name == f"manifest-{uuid}-1"
        assert name == f"manifest-list-{uuid}-0"
        (copied,) = pickle.loads(pickle.dumps(store)).write_manifests([entry("c")], 1000)
        assert uuid not in copied.file_name

    def test_what_was_written_or_read_is_not_read_again(self, table):
        file_io, store = table
        (meta,) = store.write_manifests([entry("a")], 1000)
        name, _ = store.write_list([meta])
        store.read_list(name)
        _read(store, meta)
        assert "read_bytes" not in [operation for operation, _ in file_io.operations]
        clear_manifest_cache()
        for _ in range(3):
            assert store.read_list(name) == (meta,)
            assert _read(store, meta) == (entry("a"),)
        assert [operation for operation, _ in file_io.operations].count("read_bytes") == 2

    def test_partition_statistics_cover_all_columns(self, tmp_path):
        types = [parse_type("STRING"), parse_type("DOUBLE"), parse_type("TIMESTAMP(6)")]
        store = ManifestStore(
            LocalFileIO(), TableLayout(str(tmp_path)), SeededIds(1), partition_types=types
        )
        rows = [
            ("b", -0.0, None),
            ("a much longer text than sixteen", 0.0, None),
            (None, float("nan"), None),
            ("b", -0.0, None),
        ]
        entries = [entry(f"f{i}", partition=encode_row(r, types)) for i, r in enumerate(rows)]
        (meta,) = store.write_manifests(entries, 1000)
        stats = meta.partition_stats
        low, high = decode_row(stats.min_values, types), decode_row(stats.max_values, types)
        assert low == ("a much longer text than sixteen", 0.0, None)
        assert str(low[1]) == "-0.0"
        assert high[0] == "b"
        assert str(high[1]) == "nan"
        assert stats.null_counts == (1, 0, 4)

    @pytest.mark.parametrize(
        "case", ["partition_types_legacy", "append_partition_null", "pk_partition_odd"]
    )
    def test_partition_statistics_equal_those_of_java(self, case, tmp_path):
        golden = GoldenTable(case)
        schema = golden.schemas[0]
        types = [field.type for field in schema.partition_fields]
        store = ManifestStore(
            LocalFileIO(), TableLayout(str(tmp_path)), SeededIds(1), partition_types=types
        )
        lists = [decode_metas(path.read_bytes()) for path in golden.manifest_lists()]
        described = {meta.file_name: meta for metas in lists for meta in metas}
        for path in golden.manifests():
            (meta,) = store.write_manifests(decode_entries(path.read_bytes()), 1 << 20)
            java = described[path.name]
            same = msgspec.structs.replace(java, file_name=meta.file_name, file_size=meta.file_size)
            assert meta == same

    def test_a_missing_manifest_is_file_not_found(self, table):
        _, store = table
        (meta,) = store.write_manifests([entry("a")], 1000)
        clear_manifest_cache()
        store.delete(meta.file_name)
        with pytest.raises(FileNotFoundError):
            _read(store, meta)
