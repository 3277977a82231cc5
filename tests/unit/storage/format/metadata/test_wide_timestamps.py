# SPDX-License-Identifier: Apache-2.0
"""Timestamps of all years go through a table and come back: every format, precision and depth.

The nanosecond range ends in 1677 and 2262; databases hold 0001-01-01 and 9999-12-31 all the time.
"""

import datetime
import itertools

import pyarrow as pa
import pytest

from changelog.stream_scan import StreamScan
from storage.errors import UnsupportedFeatureError
from storage.format.metadata.schema_changes import SetOption
from storage.table.inspect.system.registry import system_table
from tests.table_kit import make_table, rows_of, write

FORMATS = ("parquet", "orc", "avro")
TYPES = [
    f"TIMESTAMP({precision}){zone}"
    for precision in (0, 1, 2, 3, 4, 5, 6)
    for zone in ("", " WITH LOCAL TIME ZONE")
]
MOMENTS = (
    (1, 1, 1, 0, 0, 0),
    (1677, 9, 21, 0, 12, 43),
    (1900, 2, 28, 23, 59, 59),
    (1970, 1, 1, 0, 0, 0),
    (2024, 2, 29, 12, 0, 1),
    (2262, 4, 11, 23, 47, 17),
    (9999, 12, 31, 23, 59, 59),
)


def moments(text):
    zone = datetime.UTC if "ZONE" in text else None
    return [datetime.datetime(*parts, tzinfo=zone) for parts in MOMENTS]


def literal_of(moment):
    return moment.replace(tzinfo=None).isoformat(sep=" ") + ("Z" if moment.tzinfo else "")


@pytest.mark.parametrize("text", TYPES)
@pytest.mark.parametrize("file_format", FORMATS)
def test_nested_values_come_back_and_statistics_keep_the_rows(tmp_path, file_format, text):
    table = make_table(
        tmp_path,
        columns=(
            ("k", "INT"),
            ("t", text),
            ("a", f"ARRAY<{text}>"),
            ("m", f"MAP<INT, {text}>"),
            ("r", f"ROW<x INT, t {text}>"),
        ),
        options={"file.format": file_format, "metadata.stats-mode": "full"},
    )
    rows = [
        (n, one, [one, None], [(n, one)], {"x": n, "t": one}) for n, one in enumerate(moments(text))
    ]
    write(table, 1, [("+I", *row) for row in rows])
    write(table, 2, [("+I", 99, None, None, None, None)], full=True)
    assert rows_of(table) == [*rows, (99, None, None, None, None)]
    for n, one in enumerate(moments(text)):
        at, up_to = f"t = '{literal_of(one)}'", f"t <= '{literal_of(one)}'"
        assert [row["k"] for row in table.scan(at).to_arrow().to_pylist()] == [n]
        found = table.scan(up_to).to_arrow().to_pylist()
        assert sorted(row["k"] for row in found) == [*range(n + 1)]
    (file,) = system_table(table, "files").to_pylist()
    assert "0001-01-01" in file["min_value_stats"]
    assert "9999-12-31" in file["max_value_stats"]
    assert len(system_table(table, "audit_log").to_pylist()) == len(rows) + 1


def types_and_ways():
    """All types with `lookup` and Parquet; with others the coarsest and the finest of them."""
    types = TYPES[1::2] + TYPES[2:3]
    producers = ("input", "lookup", "full-compaction")
    for each in itertools.product(FORMATS, producers, types):
        file_format, producer, text = each
        usual = (file_format == "parquet") + (producer == "lookup")
        quick = usual == 2 or (usual == 1 and text in (types[0], types[6]))
        yield pytest.param(*each, marks=() if quick else pytest.mark.full)


@pytest.mark.parametrize(("file_format", "producer", "text"), [*types_and_ways()])
def test_changes_and_merges_of_keys_and_partitions(tmp_path, file_format, text, producer):
    table = make_table(
        tmp_path,
        columns=(("p", text), ("k", text), ("v", text)),
        keys=("p", "k"),
        partitions=("p",),
        options={
            "file.format": file_format,
            "changelog-producer": producer,
            **({"full-compaction.delta-commits": "1"} if producer == "full-compaction" else {}),
        },
    )
    stream = StreamScan(table.with_options({"scan.mode": "latest-full"}))
    assert stream.next_batch() is None
    some = moments(text)
    rows = [(one, one, some[-1]) for one in some]
    write(table, 1, [("+I", *row) for row in rows], stream=True)
    found = stream.next_batch().to_pylist()
    assert sorted(((r["p"], r["k"], r["v"]) for r in found), key=repr) == sorted(rows, key=repr)
    write(table, 2, [("+U", some[0], some[0], some[1])], stream=True)
    changed = stream.next_batch().to_pylist()
    assert (some[0], some[0], some[1]) in [(r["p"], r["k"], r["v"]) for r in changed]
    rows[0] = (some[0], some[0], some[1])
    assert rows_of(table) == sorted(rows, key=repr)
    for n, one in enumerate(some):
        for name in ("p", "k"):
            (row,) = table.scan(f"{name} = '{literal_of(one)}'").to_arrow().to_pylist()
            assert tuple(row.values()) == rows[n]
    assert system_table(table, "partitions").num_rows == len(some)


@pytest.mark.parametrize("zone", ["", " WITH LOCAL TIME ZONE"])
@pytest.mark.parametrize("file_format", ["parquet", "orc"])
def test_nanoseconds_reach_as_far_as_their_range(tmp_path, file_format, zone):
    """Arrow has no other nanoseconds; what lies outside cannot be given to a writer at all."""
    table = make_table(
        tmp_path,
        columns=(("k", "INT"), ("t", f"TIMESTAMP(9){zone}"), ("a", f"ARRAY<TIMESTAMP(7){zone}>")),
        options={"file.format": file_format},
    )
    values = [-(2**63) + 1_000_000_000, -1_000_000_000, 0, 1, 2**63 - 1_000_000_000]
    times = pa.array(values).cast(table.schema.arrow_schema.field("t").type)
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array(range(len(values)), pa.int32()),
            times,
            pa.ListArray.from_arrays(
                pa.array(range(len(values) + 1), pa.int32()),
                times,
                type=table.schema.arrow_schema.field("a").type,
            ),
        ],
        schema=table.schema.arrow_schema,
    )
    with table.new_write("w") as writer:
        writer.write(batch)
        table.new_commit("w").commit(writer.prepare_commit(1), 1)
    assert table.to_arrow().combine_chunks() == pa.Table.from_batches([batch])


@pytest.mark.parametrize("text", ["TIMESTAMP(7)", "TIMESTAMP(9) WITH LOCAL TIME ZONE"])
@pytest.mark.parametrize("nested", ["{}", "ARRAY<{}>", "MAP<INT, {}>", "ROW<a {}>"])
def test_avro_which_has_no_nanoseconds_refuses_them_when_the_table_is_made(tmp_path, text, nested):
    columns = (("k", "INT"), ("t", nested.format(text)))
    for key in ("file.format", "changelog-file.format"):
        with pytest.raises(UnsupportedFeatureError, match="Avro"):
            make_table(tmp_path / key, columns=columns, options={key: "avro"})
    table = make_table(tmp_path, columns=columns)
    with pytest.raises(UnsupportedFeatureError, match="Avro"):
        table.alter([SetOption("file.format.per.level", "0:avro")])


def test_a_table_moves_from_parquet_to_orc_with_its_old_dates(tmp_path):
    table = make_table(tmp_path, columns=(("k", "INT"), ("t", "TIMESTAMP(6)")))
    some = moments("TIMESTAMP(6)")
    write(table, 1, [("+I", n, one) for n, one in enumerate(some)])
    table = table.alter([SetOption("file.format", "orc")])
    write(table, 2, [("+U", 0, some[-1])], full=True)
    assert rows_of(table)[0] == (0, some[-1])
    assert rows_of(table)[1:] == [(n, one) for n, one in enumerate(some)][1:]
