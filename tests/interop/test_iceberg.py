# SPDX-License-Identifier: Apache-2.0
"""At every commit Iceberg engines see the rows that we see.

Random histories of inserts, updates, deletes, compactions, schema changes, expiry, rollbacks and
tags; after each step PyIceberg and DuckDB's extension read the twin. Values of columns are chosen
so that every engine has a type for them.
"""

import dataclasses
import datetime
import decimal
import pathlib
import random
from typing import Any

import pyarrow as pa
import pytest

from storage.format.metadata.schema_changes import (
    AddColumn,
    DropColumn,
    MoveColumn,
    RenameColumn,
    UpdateType,
)
from storage.format.types.type_text import parse_type
from storage.format.types.types import VALUE_KIND
from storage.table.inspect.system.registry import system_table
from storage.table.table import FileStoreTable
from tests.interop.peers import iceberg_rows
from tests.interop.spark_peer import SparkPeer
from tests.table_kit import make_table, reopened

pytestmark = pytest.mark.interop

ENGINES = ("pyiceberg", "duckdb-iceberg")
TABLE_LOCATION = {"metadata.iceberg.storage": "table-location"}
V3 = {**TABLE_LOCATION, "metadata.iceberg.format-version": "3"}
VECTORS = {**V3, "deletion-vectors.enabled": "true"}
COLUMNS = (
    ("k", "BIGINT"),
    ("p", "STRING"),
    ("n", "INT"),
    ("s", "STRING"),
    ("price", "DECIMAL(10, 2)"),
    ("big", "DECIMAL(30, 5)"),
    ("at3", "TIMESTAMP(3)"),
    ("at", "TIMESTAMP(6)"),
    ("zoned", "TIMESTAMP(6) WITH LOCAL TIME ZONE"),
    ("day", "DATE"),
    ("ok", "BOOLEAN"),
    ("d", "DOUBLE"),
    ("tiny", "TINYINT"),
    ("raw", "BYTES"),
    ("many", "ARRAY<INT>"),
    ("named", "MAP<STRING, BIGINT>"),
    ("r", "ROW<x INT, y STRING>"),
)


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of table: its keys, partition keys and options; `$ro` for the optimized view."""

    name: str
    keys: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    options: tuple[tuple[str, str], ...] = ()
    optimized: bool = False


def _kind(name: str, options: dict[str, str], **others: Any) -> Kind:
    return Kind(name, options=tuple(options.items()), **others)


KINDS = (
    _kind("vectors", {**VECTORS, "bucket": "2"}, keys=("k",)),
    _kind(
        "vectors-64", {**VECTORS, "bucket": "1", "deletion-vectors.bitmap64": "true"}, keys=("k",)
    ),
    _kind("partitions", {**VECTORS, "bucket": "1"}, keys=("p", "k"), partitions=("p",)),
    _kind("dynamic", {**VECTORS, "bucket": "-1"}, keys=("k",)),
    _kind("append", {**TABLE_LOCATION, "bucket": "-1"}, partitions=("p",)),
    _kind("append-vectors", {**VECTORS, "bucket": "-1"}),
    _kind("first-row", {**V3, "merge-engine": "first-row", "bucket": "1"}, keys=("k",)),
    _kind("optimized", {**TABLE_LOCATION, "bucket": "1"}, keys=("k",), optimized=True),
    _kind("hadoop", {**VECTORS, "metadata.iceberg.storage": "hadoop-catalog"}, keys=("k",)),
)


def _value(name: str, key: int, rng: random.Random) -> Any:
    if name != "p" and rng.random() < 0.1:
        return None
    day = datetime.date(1969, 12, 20) + datetime.timedelta(days=key % 40)
    at = datetime.datetime(1969, 12, 31, 23, 59, 59) + datetime.timedelta(seconds=key * 977)  # noqa: DTZ001
    number = rng.randint(-99, 99)
    return {
        "p": f"part {key % 3}",
        "n": number,
        "s": "é" * (key % 20) + str(number),
        "text": "e" * (key % 20) + str(number),
        "price": decimal.Decimal(number) / 100,
        "big": decimal.Decimal(number) * 10**18 + decimal.Decimal("0.00001"),
        "at3": at,
        "at": at.replace(microsecond=number + 99),
        "zoned": at.replace(tzinfo=datetime.UTC),
        "day": day,
        "ok": number > 0,
        "d": [number / 7, float("inf"), -0.0][key % 3],
        "tiny": number,
        "raw": bytes([key % 256]) * 3,
        "many": [number, None],
        "named": [("a", number)],
        "r": {"x": number, "y": None},
    }.get(name, number)


class _History:
    """A table with the tags that it has and what was read of kept snapshots."""

    def __init__(self, kind: Kind, seed: int, directory: pathlib.Path) -> None:
        self.rng = random.Random(f"{kind.name} {seed}")
        self.kind = kind
        options = {"num-sorted-run.compaction-trigger": "3", **dict(kind.options)}
        self.table = make_table(
            directory,
            columns=COLUMNS,
            keys=kind.keys,
            partitions=kind.partitions,
            options=options,
            seed=seed,
        )
        self.known: dict[str, pa.Table] = {}
        self.identifier = 0

    def step(self) -> None:
        actions = [self.write] * 6 + [
            self.compact,
            self.alter,
            self.tag,
            self.expire,
            self.roll_back,
        ]
        if self.kind.name == "append-vectors":
            actions += [self.delete] * 3
        self.rng.choice(actions)()
        self.table = reopened(self.table)
        latest = self.table.latest_snapshot()
        if latest is not None:
            self.known[str(latest.id)] = self.rows()

    def rows(self) -> pa.Table:
        if self.kind.optimized:
            return system_table(self.table, "ro")
        return self.table.to_arrow()

    def write(self, full: bool = False) -> None:
        self.identifier += 1
        schema = self.table.schema.arrow_schema
        keys = self.rng.sample(range(60), self.rng.randint(1, 25))
        columns = [
            pa.array(
                [key if field.name == "k" else _value(field.name, key, self.rng) for key in keys],
                field.type,
            )
            for field in schema
        ]
        names = [field.name for field in schema]
        if self.kind.keys:
            deletes = self.kind.name != "first-row"
            kinds = [3 if deletes and self.rng.random() < 0.25 else 0 for _ in keys]
            columns.append(pa.array(kinds, pa.int8()))
            names.append(VALUE_KIND)
        with self.table.new_write("test") as writer:
            writer.write(pa.RecordBatch.from_arrays(columns, names=names))
            if full:
                writer.compact(full=True)
            self.table.new_commit("test").commit(writer.prepare_commit(), self.identifier)

    def compact(self) -> None:
        if self.kind.keys:
            self.write(full=True)

    def delete(self) -> None:
        self.table.delete_where(f"k < {self.rng.randint(0, 30)}", "test")

    def alter(self) -> None:
        names = {field.name: field for field in self.table.schema.fields}
        if "n" in names and self.rng.random() < 0.3:
            changes: list[Any] = [UpdateType("n", parse_type("BIGINT"))]
        elif "price" in names and self.rng.random() < 0.3:
            changes = [UpdateType("price", parse_type("DECIMAL(14, 2)"))]
        elif "s" in names and self.rng.random() < 0.3:
            changes = [RenameColumn("s", "text")]
        elif "tiny" in names and self.rng.random() < 0.4:
            changes = [DropColumn("tiny")]
        elif "ok" in names and self.rng.random() < 0.4:
            changes = [MoveColumn("ok", first=True)]
        else:
            changes = [AddColumn(f"c{self.table.schema.highest_field_id}", parse_type("BIGINT"))]
        self.table = self.table.alter(changes)
        self.write()

    def tag(self) -> None:
        latest = self.table.latest_snapshot()
        if latest is not None:
            name = f"tag-{self.identifier}"
            self.table.create_tag(name, ignore_if_exists=True)
            self.known[name] = self.known[str(latest.id)]

    def expire(self) -> None:
        self.table.expire_snapshots(retain_min=1, retain_max=3, time_retained_ms=0)

    def roll_back(self) -> None:
        ids = self.table.snapshots.ids()
        if len(ids) < 2:
            return
        target = ids[-2]
        self.table.rollback_to(target)
        for name in list(self.known):
            gone = int(name) > target if name.isdigit() else self._is_gone(name)
            if gone:
                del self.known[name]

    def _is_gone(self, tag: str) -> bool:
        path = self.table.layout.tag_file(tag)
        return not self.table.file_io.exists(path)


def _references(history: _History) -> list[str]:
    """The newest snapshot, an older one that is still there, and a tag."""
    ids = [str(one) for one in history.table.snapshots.ids() if str(one) in history.known]
    tags = [name for name in history.known if not name.isdigit()]
    return [*dict.fromkeys([*ids[-1:], *ids[:1]]), *tags[-1:]]


def _plain(table: pa.Table, like: pa.Table) -> list[str]:
    """Rows as texts, sorted; columns by name, values as the other table has them."""
    columns = []
    for name in like.column_names:
        column = table.column(name)
        wanted = like.schema.field(name).type
        if not pa.types.is_nested(wanted):
            column = column.cast(wanted)
        columns.append(column.to_pylist())
    return sorted(map(repr, zip(*columns, strict=True)))


def _check(history: _History, references: list[str]) -> None:
    for reference in references:
        expected = history.known[reference]
        for engine in ENGINES:
            if engine == "duckdb-iceberg" and not reference.isdigit():
                continue
            found = iceberg_rows(engine, metadata_of(history.table), reference)
            assert set(found.column_names) == set(expected.column_names), (engine, reference)
            assert _plain(found, expected) == _plain(expected, expected), (engine, reference)


def metadata_of(table: FileStoreTable) -> pathlib.Path:
    """The newest metadata file, as the hint says."""
    root = pathlib.Path(table.layout.root)
    directory = root / "metadata"
    if table.options.iceberg_storage == "hadoop-catalog":
        directory = root.parents[1] / "iceberg" / "db" / root.name / "metadata"
    version = (directory / "version-hint.text").read_text()
    return directory / f"v{version}.metadata.json"


def run(kind: Kind, seed: int, directory: pathlib.Path, steps: int) -> None:
    history = _History(kind, seed, directory)
    for _ in range(steps):
        history.step()
        if history.table.latest_snapshot() is not None:
            _check(history, _references(history))
    assert history.table.sync_iceberg() == 0


@pytest.mark.parametrize("kind", [KINDS[2], KINDS[4]], ids=lambda kind: kind.name)
def test_engines_see_our_rows_at_every_commit(kind: Kind, tmp_path: pathlib.Path) -> None:
    run(kind, 1, tmp_path, steps=8)


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_spark_sees_our_rows(kind: Kind, spark: SparkPeer, tmp_path: pathlib.Path) -> None:
    if dict(kind.options)["metadata.iceberg.storage"] != "table-location":
        pytest.skip("Spark finds the other places by catalogs")
    history = _History(kind, 7, tmp_path)
    while history.table.latest_snapshot() is None or history.identifier < 8:
        history.step()
    for reference in _references(history):
        expected = history.known[reference]
        option = "snapshot-id" if reference.isdigit() else "tag"
        view = {"t": (history.table.layout.root, {option: reference})}
        found = spark.query("SELECT * FROM t", iceberg=view)
        assert _plain(found, expected) == _plain(expected, expected), (kind, reference)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(34))
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_engines_see_our_rows_in_many_histories(
    kind: Kind, seed: int, tmp_path: pathlib.Path
) -> None:
    run(kind, 100 + seed, tmp_path, steps=15)
