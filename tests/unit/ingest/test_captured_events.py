# SPDX-License-Identifier: Apache-2.0
"""Messages of real Debezium connectors (see captured_events) through the decoders."""

import datetime
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from ingest.formats.debezium_avro import DebeziumAvroDecoder, DebeziumAvroOptions
from ingest.formats.debezium_json import DebeziumJsonDecoder, DebeziumOptions
from ingest.formats.events import (
    OFFSET_COLUMN,
    BadRecord,
    ChangeBatch,
    SchemaDelta,
    SourceTable,
    Target,
    Toast,
)
from ingest.formats.type_mapping import TypeMapping
from ingest.registry.client import AVRO, RegisteredSchema, SchemaId
from ingest.schema_sync import NewTable, reconcile
from storage.format.schema import TableSchema
from storage.format.schema_changes import evolve
from tests.unit.ingest.captured_events import FOLDER, Capture, captures, load

KNOWN_BAD = {
    # by policy (TYPES.md): PostgreSQL's infinities, MariaDB's times outside of a day
    ("infinities", "unrepresentable", "column"),
    ("long_times", "unrepresentable", "column t"),
    # a change of key whose new row does not carry the unchanged TOAST values
    ("toasted", "unavailable_value", "column"),
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


class Sink:
    """Tables as a pipeline would make them: created and changed by deltas.

    Args:
        schemas: of tables that are there before.
        mapping: words of `sink.type.mapping`.
    """

    def __init__(
        self, schemas: dict[str, TableSchema] | None = None, mapping: Sequence[str] = ()
    ) -> None:
        self._options = DebeziumOptions(type_mapping=TypeMapping.of(mapping))
        self.schemas = dict(schemas or {})
        self.refused: list[str] = []
        self.changes: dict[str, list[ChangeBatch]] = defaultdict(list)
        self.bad: list[tuple[str, BadRecord]] = []
        self.counts: Counter[str] = Counter()

    def resolve(self, source: SourceTable, _: str) -> Target:
        schema = self.schemas.get(source.table)
        return Target(source.table, schema, owner=source.label, toast=Toast.KEEP)

    def take(self, capture: Capture) -> "Sink":
        """Decode a whole capture; a batch is decoded again when it asked for a change."""
        decoder = self._decoder(capture)
        for raw in capture.batches():
            result = decoder.decode(raw)
            for _ in range(8):
                if not result.deltas:
                    break
                for delta in result.deltas:
                    self._apply(delta)
                result = decoder.decode(raw)
            self.counts.update(result.counts)
            self.bad += [(raw.topic, record) for record in result.bad]
            for change in result.changes:
                self.changes[change.target].append(change)
        return self

    def unknown_bad(self, known: set[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
        """Refusals that are not among the known ones."""
        found = [(topic.split(".")[-1], b.error_class, b.error) for topic, b in self.bad]
        return [
            (table, kind, error)
            for table, kind, error in found
            if not any((table, kind) == k[:2] and error.startswith(k[2]) for k in known)
        ]

    def rows(self, name: str) -> pa.Table:
        """The rows of a table, in offset order."""
        parts = [pa.Table.from_batches([change.rows]) for change in self.changes[name]]
        return pa.concat_tables(parts, promote_options="default")

    def _decoder(self, capture: Capture) -> Any:
        if capture.converter != "avro":
            return DebeziumJsonDecoder(self._options, self.resolve)

        def schema(number: SchemaId) -> RegisteredSchema:
            answer = capture.schemas[int(number)]
            assert not answer.get("references")
            return RegisteredSchema(AVRO, answer["schema"])

        options = DebeziumAvroOptions(schemas=schema, debezium=self._options)
        return DebeziumAvroDecoder(options, self.resolve)

    def _apply(self, delta: SchemaDelta) -> None:
        existing = self.schemas.get(delta.target)
        decision = reconcile(existing, [delta], now_ms=0)
        self.refused += decision.reasons
        if isinstance(decision.action, NewTable):
            self.schemas[delta.target] = decision.action.schema
        elif isinstance(decision.action, tuple) and existing is not None:
            self.schemas[delta.target] = evolve(existing, list(decision.action), 0)


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
    capture = load(path)
    sink = Sink().take(capture)
    assert sink.refused == []
    assert sink.unknown_bad(KNOWN_BAD) == []
    assert sink.counts["pending"] == 0
    assert sink.counts["unrouted"] == 0
    assert sum(sink.counts.values()) + len(sink.bad) == len(capture.messages)
    rows = sum(change.rows.num_rows for changes in sink.changes.values() for change in changes)
    assert rows == sum(sink.counts[f"op.{op}"] for op in "rcud") > 110
    assert sink.counts["tombstone"] > 5
    assert sink.counts["heartbeat"] > 0
    assert sink.counts["transaction"] > 5
    assert sink.counts["op.t"] == 1
    assert sink.counts["op.m"] == ("postgres" in path.name)
    assert (sink.counts["schema_change"] > 5) == ("mariadb" in path.name)


@pytest.mark.parametrize("words", [["infinity-to-null", "time-to-string"], ["infinity-to-bounds"]])
@pytest.mark.parametrize("converter", ["json-schema", "avro"])
def test_mappings_leave_nothing_to_refuse(converter: str, words: list[str]) -> None:
    sink = Sink(mapping=words).take(load(FOLDER / f"postgres.{converter}.jsonl.gz"))
    assert {topic for topic, _ in sink.bad} <= {f"pg-{converter}.public.toasted"}
    found = sink.rows("infinities")
    given = {name: set(found[name].to_pylist()) - {None} for name in ("d", "ts", "tstz")}
    if "infinity-to-null" in words:
        assert given["tstz"] == set()
    else:
        assert {moment.year for moment in given["tstz"]} == {1, 9999}
        assert datetime.date(9999, 12, 31) in given["d"]
    assert found["old"].cast("int64").drop_null().to_pylist().count(327_403_382_400_000_000) > 0
    sink = Sink(mapping=["time-to-string"]).take(load(FOLDER / f"mariadb.{converter}.jsonl.gz"))
    assert sink.bad == []
    assert {"838:59:59", "-12:00:00", "24:00:00"} <= set(sink.rows("long_times")["t"].to_pylist())


@pytest.mark.parametrize("database", ["postgres", "mariadb"])
def test_json_without_schema_gives_the_same_rows(database: str) -> None:
    """The tables are there; what a value means is told by its column."""
    blocks = Sink().take(load(FOLDER / f"{database}.json-schema.jsonl.gz"))
    bare = Sink(blocks.schemas, ["bits-to-bigint"])
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
    blocks = Sink().take(load(FOLDER / f"{database}.json-schema.jsonl.gz"))
    avro = Sink().take(load(FOLDER / f"{database}.avro.jsonl.gz"))
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
