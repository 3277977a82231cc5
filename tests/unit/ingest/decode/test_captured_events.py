# SPDX-License-Identifier: Apache-2.0
"""Messages of real Debezium connectors (see captured_events) through the decoders."""

import datetime
import functools
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from ingest.decode.events import OFFSET_COLUMN
from tests.unit.ingest.captured_events import FOLDER, captures, load
from tests.unit.ingest.captured_sink import CapturedSink

KNOWN_BAD = {
    # by policy (types.md): PostgreSQL's infinities, MariaDB's times outside of a day
    ("infinities", "unrepresentable", "column"),
    ("long_times", "unrepresentable", "column t"),
}
"""(table, error class, how the error begins) of what is refused; entries may become needless."""

BARE_KNOWN_BAD = {
    # 2,046 fraction digits: without a schema block nobody tells that they are none
    ("decimals", "type", "column rounded"),
}
BARE_DIFFERS = {("decimals", "huge"), ("bit_strings", "sixty_four")}
"""Base64 text and little-endian bits: without a schema block nobody tells what they are."""

AVRO_DIFFERS = {("geometries", "way")}
"""Has a map, whose entries each connector sends in an order of its own."""


@functools.cache
def taken(path: Path) -> CapturedSink:
    """Tables after the messages of a file; tests only read them."""
    return CapturedSink().take(load(path))


def differing_columns(one: pa.Table, two: pa.Table) -> list[str]:
    """Columns whose values differ in the rows that both have."""
    common = set(one[OFFSET_COLUMN].to_pylist()) & set(two[OFFSET_COLUMN].to_pylist())
    wanted = pa.array(sorted(common), pa.int64())
    left, right = (t.filter(pc.is_in(t[OFFSET_COLUMN], wanted)) for t in (one, two))
    assert left.num_rows == right.num_rows
    return [
        name
        for name in left.column_names
        if not _comparable(left[name]).equals(_comparable(right[name]))
    ]


def _comparable(column: pa.ChunkedArray) -> pa.Array:
    """NaN equals nothing, its text does."""
    array = column.combine_chunks()
    return array.cast(pa.string()) if pa.types.is_floating(array.type) else array


@pytest.mark.parametrize(
    "path", captures(["json", "json-schema", "avro"]), ids=lambda path: path.name.split(".jsonl")[0]
)
def test_every_message_is_rows_or_a_count(path: Path) -> None:
    sink = taken(path)
    assert sink.refused == []
    assert sink.unknown_bad(KNOWN_BAD) == []
    assert sink.counts["pending"] == 0
    assert sink.counts["unrouted"] == 0
    assert sum(sink.counts.values()) + len(sink.bad) == len(load(path).messages)
    rows = sum(change.rows.num_rows for changes in sink.changes.values() for change in changes)
    rows -= sink.moved()  # a delete of the old key before each
    assert rows == sum(sink.counts[f"op.{op}"] for op in "rcud") > 110
    assert sink.moved() == (3 if path.name.startswith("postgres") else 0)
    assert sink.counts["tombstone"] > 5
    assert sink.counts["heartbeat"] > 0
    assert sink.counts["transaction"] > 5
    assert sink.counts["op.t"] == 1
    assert sink.counts["op.m"] == ("postgres" in path.name)
    assert (sink.counts["schema_change"] > 5) == ("mariadb" in path.name)


@pytest.mark.parametrize("words", [["infinity-to-null", "time-to-string"], ["infinity-to-bounds"]])
@pytest.mark.parametrize("converter", ["json-schema", "avro"])
def test_mappings_leave_nothing_to_refuse(converter: str, words: list[str]) -> None:
    sink = CapturedSink(mapping=words).take(load(FOLDER / f"postgres.{converter}.jsonl.gz"))
    assert sink.bad == []
    found = sink.rows("infinities")
    given = {name: set(found[name].to_pylist()) - {None} for name in ("d", "ts", "tstz")}
    if "infinity-to-null" in words:
        assert given["tstz"] == set()
    else:
        assert {moment.year for moment in given["tstz"]} == {1, 9999}
        assert datetime.date(9999, 12, 31) in given["d"]
    assert found["old"].cast("int64").drop_null().to_pylist().count(327_403_382_400_000_000) > 0


@pytest.mark.parametrize("converter", ["json-schema", "avro"])
def test_times_beyond_a_day_are_text_by_word(converter: str) -> None:
    capture = load(FOLDER / f"mariadb.{converter}.jsonl.gz")
    sink = CapturedSink(mapping=["time-to-string"]).take(capture)
    assert sink.bad == []
    assert {"838:59:59", "-12:00:00", "24:00:00"} <= set(sink.rows("long_times")["t"].to_pylist())


@pytest.mark.parametrize("database", ["postgres", "mariadb"])
def test_json_without_schema_gives_the_same_rows(database: str) -> None:
    """The tables are there; what a value means is told by its column."""
    blocks = taken(FOLDER / f"{database}.json-schema.jsonl.gz")
    bare = CapturedSink(blocks.schemas, ["bits-to-bigint"])
    bare.take(load(FOLDER / f"{database}.json.jsonl.gz"))
    assert bare.refused == []
    assert bare.unknown_bad(KNOWN_BAD | BARE_KNOWN_BAD) == []
    assert bare.changes.keys() == blocks.changes.keys()
    found = {
        (name, column)
        for name in blocks.changes
        for column in differing_columns(blocks.rows(name), bare.rows(name))
    }
    assert found <= BARE_DIFFERS


@pytest.mark.parametrize("database", ["postgres", "mariadb"])
def test_avro_gives_the_same_rows(database: str) -> None:
    """Schemas too: both encodings say the same of every column."""
    blocks = taken(FOLDER / f"{database}.json-schema.jsonl.gz")
    avro = taken(FOLDER / f"{database}.avro.jsonl.gz")
    assert avro.counts == blocks.counts
    assert len(avro.bad) == len(blocks.bad)
    assert avro.changes.keys() == blocks.changes.keys()
    for name in blocks.changes:
        assert avro.rows(name).schema == blocks.rows(name).schema
    found = {
        (name, column)
        for name in blocks.changes
        for column in differing_columns(blocks.rows(name), avro.rows(name))
    }
    assert found <= AVRO_DIFFERS
