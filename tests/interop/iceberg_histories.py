# SPDX-License-Identifier: Apache-2.0
"""Random histories of tables with Iceberg metadata: what is done to them, and what must be seen.

A history is dealt out from a kind of table and a seed: inserts, updates, deletes, keys that move
between partitions, changes of columns at both depths, compaction, overwrites, expiry, rollback,
tags. Every state that a reader can ask for is kept in `known`, by snapshot id and by tag; the clock
moves on with every step, so that a state can be asked for by its time, too. Values of columns are
chosen so that every engine has a type for them.
"""

import dataclasses
import datetime
import decimal
import pathlib
import random
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from storage.clock import ManualClock
from storage.format.metadata.schema_changes import (
    AddColumn,
    DropColumn,
    MoveColumn,
    RenameColumn,
    SchemaChange,
    UpdateType,
)
from storage.format.types.types import VALUE_KIND, parse_type
from storage.table.inspect.system.registry import system_table
from storage.table.table import FileStoreTable
from tests.table_kit import make_table, reopened

__all__ = ["KINDS", "TABLE_LOCATION", "VECTORS", "History", "Kind", "metadata_of"]

TABLE_LOCATION = {"metadata.iceberg.storage": "table-location"}
V3 = {**TABLE_LOCATION, "metadata.iceberg.format-version": "3"}
VECTORS = {**V3, "deletion-vectors.enabled": "true"}
HADOOP = {"metadata.iceberg.storage": "hadoop-catalog"}
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
    ("zoned3", "TIMESTAMP(3) WITH LOCAL TIME ZONE"),
    ("day", "DATE"),
    ("ok", "BOOLEAN"),
    ("d", "DOUBLE"),
    ("f", "FLOAT"),
    ("tiny", "TINYINT"),
    ("small", "SMALLINT"),
    ("code", "CHAR(3)"),
    ("raw", "BYTES"),
    ("many", "ARRAY<INT>"),
    ("named", "MAP<STRING, BIGINT>"),
    ("r", "ROW<x INT, y STRING>"),
    ("deep", "ARRAY<ROW<a INT, b ARRAY<STRING>>>"),
)
KEY_COUNT = 60
PARTITION_COUNT = 3


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of table.

    Attributes:
        optimized: readers of Iceberg see the view `$ro`.
        deletes: rows of kind -D may be written.
        moves: a key may be written again with another partition.
    """

    name: str
    keys: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    options: tuple[tuple[str, str], ...] = ()
    optimized: bool = False
    deletes: bool = True
    moves: bool = False

    @property
    def settings(self) -> dict[str, str]:
        """Options of the table."""
        return dict(self.options)

    @property
    def vectors(self) -> bool:
        """Whether rows are deleted by vectors."""
        return self.settings.get("deletion-vectors.enabled") == "true"


def _kind(name: str, options: dict[str, str], **others: Any) -> Kind:
    return Kind(name, options=tuple(options.items()), **others)


PARTIAL = {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"}
SUMS = {"merge-engine": "aggregation", "fields.default-aggregate-function": "last_value"}
SMALL = {"target-file-size": "4 kb", "file.compression": "snappy", "file.block-size": "1 kb"}

KINDS = (
    _kind("vectors", {**VECTORS, "bucket": "2"}, keys=("k",)),
    _kind(
        "vectors-64", {**VECTORS, "bucket": "1", "deletion-vectors.bitmap64": "true"}, keys=("k",)
    ),
    _kind("partitions", {**VECTORS, "bucket": "1"}, keys=("p", "k"), partitions=("p",)),
    _kind(
        "two-partitions",
        {**VECTORS, **HADOOP, "bucket": "1"},
        keys=("day", "k", "n"),
        partitions=("day", "n"),
    ),
    _kind("dynamic", {**VECTORS, "bucket": "-1"}, keys=("k",)),
    _kind("moves", {**VECTORS, "bucket": "-1"}, keys=("k",), partitions=("p",), moves=True),
    _kind("lookup", {**VECTORS, "bucket": "1", "changelog-producer": "lookup"}, keys=("k",)),
    _kind("partial", {**VECTORS, **PARTIAL, "bucket": "1"}, keys=("k",)),
    _kind("aggregation", {**VECTORS, **SUMS, "bucket": "2"}, keys=("k",), deletes=False),
    _kind("append", {**TABLE_LOCATION, "bucket": "-1"}, partitions=("p",)),
    _kind("append-days", {**TABLE_LOCATION, **HADOOP, "bucket": "-1"}, partitions=("day",)),
    _kind("append-buckets", {**V3, "bucket": "2", "bucket-key": "k"}),
    _kind("append-vectors", {**VECTORS, "bucket": "-1"}),
    _kind("append-small", {**VECTORS, **SMALL, "bucket": "-1"}, partitions=("p",)),
    _kind(
        "first-row",
        {**V3, "merge-engine": "first-row", "bucket": "1", "data-file.thin-mode": "true"},
        keys=("k",),
        deletes=False,
    ),
    _kind("optimized", {**TABLE_LOCATION, "bucket": "1"}, keys=("k",), optimized=True),
    _kind(
        "optimized-3",
        {**V3, **HADOOP, "bucket": "1"},
        keys=("p", "k"),
        partitions=("p",),
        optimized=True,
    ),
    _kind("hadoop", {**VECTORS, **HADOOP, "bucket": "1"}, keys=("k",)),
    _kind("small", {**VECTORS, **SMALL, "bucket": "1"}, keys=("k",)),
    _kind("thin", {**VECTORS, "bucket": "1", "data-file.thin-mode": "true"}, keys=("k",)),
)


def value_of(name: str, key: int, rng: random.Random, *, null: bool = True) -> Any:
    """A value of a column; null now and then, where it may be."""
    if null and name != "p" and rng.random() < 0.1:
        return None
    day = datetime.date(1969, 12, 20) + datetime.timedelta(days=key % 40)
    at = datetime.datetime(1969, 12, 31, 23, 59, 59) + datetime.timedelta(seconds=key * 977)  # noqa: DTZ001
    number = rng.randint(-99, 99)
    return {
        "n": number,
        "s": "é" * (key % 20) + str(number),
        "text": "e" * (key % 20) + str(number),
        "price": decimal.Decimal(number) / 100,
        "big": decimal.Decimal(number) * 10**18 + decimal.Decimal("0.00001"),
        "at3": at.replace(microsecond=1000 * (number + 99)),
        "at": at.replace(microsecond=number + 99),
        "zoned": at.replace(tzinfo=datetime.UTC),
        "zoned3": at.replace(tzinfo=datetime.UTC, microsecond=1000 * (number + 99)),
        "day": day,
        "ok": number > 0,
        "d": [number / 7, float("inf"), -0.0, float("nan")][key % 4],
        "f": [number / 8, float("-inf"), float("nan")][key % 3],
        "tiny": number,
        "small": number * 300,
        "code": f"{abs(number) % 10:03}",
        "raw": bytes([key % 256]) * 3,
        "many": [number, None],
        "named": [("a", number)],
    }.get(name, number)


def _nested(type_: pa.DataType, number: int) -> Any:
    """A value of any type, of a number."""
    if pa.types.is_struct(type_):
        return {field.name: _nested(field.type, number) for field in type_}
    if pa.types.is_list(type_):
        return [_nested(type_.value_type, number), None]
    return f"é{number}" if pa.types.is_string(type_) else number


class _TickingClock(ManualClock):
    """A clock of which every look takes a millisecond, so that no two commits have one time."""

    def now_ms(self) -> int:
        """See `Clock`."""
        self.advance(1)
        return super().now_ms()


class History:
    """A table with what was seen of it in each state that a reader can still ask for.

    Attributes:
        table: as it is now.
        known: rows by snapshot id and by tag.
        times: when a snapshot was the newest [ms], by its id.
    """

    def __init__(self, kind: Kind, seed: int, directory: pathlib.Path) -> None:
        self.rng = random.Random(f"{kind.name} {seed}")
        self.kind = kind
        options = {"num-sorted-run.compaction-trigger": "3", **kind.settings}
        self.clock = _TickingClock()
        self.table: FileStoreTable = make_table(
            directory,
            columns=COLUMNS,
            keys=kind.keys,
            partitions=kind.partitions,
            options=options,
            seed=seed,
            clock=self.clock,
        )
        self.known: dict[str, pa.Table] = {}
        self.times: dict[str, int] = {}
        self.identifier = 0
        self.done: list[str] = []

    def step(self) -> None:
        """Do something, and note what is to be seen."""
        self.clock.advance(self.rng.randint(1_000, 100_000))
        action = self.rng.choice(self._actions())
        self.done.append(action.__name__.strip("_"))
        action()
        self.table = reopened(self.table)
        latest = self.table.latest_snapshot()
        if latest is not None and str(latest.id) not in self.known:
            self.known[str(latest.id)] = self.rows()
            self.times[str(latest.id)] = self.clock.now_ms()

    def _actions(self) -> Sequence[Callable[[], object]]:
        actions: list[Callable[[], object]] = [self.write] * 7
        actions += [self._alter] * 2 + [self._tag, self._untag, self._expire, self._roll_back]
        if self.kind.keys:
            actions += [self._compact]
            if self.kind.name in ("vectors", "dynamic", "partial", "partitions"):
                actions += [self._delete]
        elif self.kind.vectors or "bucket-key" not in self.kind.settings:
            actions += [self._delete, self._delete, self._compact_append]
        if self.kind.partitions:
            actions += [self._drop_partition]
        if self.rng.random() < 0.05:
            actions += [self.table.truncate]
        return actions

    def rows(self) -> pa.Table:
        """What readers of Iceberg are to see."""
        if self.kind.optimized:
            return system_table(self.table, "ro")
        return self.table.to_arrow()

    def references(self) -> list[str]:
        """The newest snapshot, two older ones that are still there, and a tag."""
        ids = [str(one) for one in self.table.snapshots.ids() if str(one) in self.known]
        tags = [name for name in self.known if not name.isdigit()]
        some = [self.rng.choice(tags)] if tags else []
        older = [self.rng.choice(ids)] if ids else []
        return list(dict.fromkeys([*ids[-1:], *ids[:1], *older, *some]))

    def write(self, full: bool = False) -> None:
        """A commit of some rows."""
        self.identifier += 1
        keys = self.rng.sample(range(KEY_COUNT), self.rng.randint(1, 25))
        batch = self._batch(keys)
        with self.table.new_write("test") as writer:
            writer.write(batch)
            if full:
                writer.compact(full=True)
            self.table.new_commit("test").commit(writer.prepare_commit(), self.identifier)

    def _batch(self, keys: Sequence[int]) -> pa.RecordBatch:
        schema = self.table.schema.arrow_schema
        columns = [pa.array([self._value(f, key) for key in keys], f.type) for f in schema]
        names = [field.name for field in schema]
        if self.kind.keys:
            share = 0.25 if self.kind.deletes else 0.0
            kinds = [3 if self.rng.random() < share else 0 for _ in keys]
            columns.append(pa.array(kinds, pa.int8()))
            names.append(VALUE_KIND)
        return pa.RecordBatch.from_arrays(columns, names=names)

    def _value(self, field: pa.Field, key: int) -> Any:
        if field.name == "k":
            return key
        if field.name == "p":
            at = self.rng.randrange(PARTITION_COUNT) if self.kind.moves else key % PARTITION_COUNT
            return f"part {at}"
        if field.name in self.kind.partitions:
            if self.kind.name == "append-days" and self.rng.random() < 0.2:
                return None
            return key % 2 if field.name == "n" else datetime.date(1969, 12, 31 - key % 3)
        if pa.types.is_nested(field.type) and field.name not in ("many", "named"):
            gone = self.rng.random() < 0.1
            return None if gone else _nested(field.type, self.rng.randint(-9, 9))
        found = value_of(field.name, key, self.rng, null=field.nullable)
        text = pa.types.is_string(field.type) and isinstance(found, int)
        return str(found) if text else found

    def _compact(self) -> None:
        self.write(full=True)

    def _compact_append(self) -> None:
        self.identifier += 1
        with self.table.new_write("test") as writer:
            writer.compact(full=True)
            self.table.new_commit("test").commit(writer.prepare_commit(), self.identifier)

    def _delete(self) -> None:
        self.table.delete_where(f"k < {self.rng.randint(0, 30)}", "test")

    def _drop_partition(self) -> None:
        name = self.kind.partitions[0]
        value = "part 1" if name == "p" else datetime.date(1969, 12, 31)
        self.table.drop_partitions([{name: value}])

    def _alter(self) -> None:
        names = {field.name for field in self.table.schema.fields} - {*self.kind.partitions}
        names -= {*self.kind.keys}
        inner = {field.name for field in self.table.schema.arrow_schema.field("r").type}
        number = self.table.schema.highest_field_id
        some: list[tuple[bool, list[SchemaChange]]] = [
            ("n" in names, [UpdateType("n", parse_type("BIGINT"))]),
            ("f" in names, [UpdateType("f", parse_type("DOUBLE"))]),
            ("price" in names, [UpdateType("price", parse_type("DECIMAL(14, 2)"))]),
            ("s" in names, [RenameColumn("s", "text")]),
            ("tiny" in names, [DropColumn("tiny")]),
            ("tiny" not in names, [AddColumn("tiny", parse_type("STRING"))]),
            ("ok" in names, [MoveColumn("ok", first=True)]),
            ("day" in names, [MoveColumn("day", after="k")]),
            (True, [AddColumn(f"c{number}", parse_type("BIGINT"), after="p")]),
            (True, [AddColumn(("r", f"z{number}"), parse_type("STRING"))]),
            ("x" in inner, [UpdateType(("r", "x"), parse_type("BIGINT"))]),
            ("y" in inner, [DropColumn(("r", "y"))]),
            ("x" in inner, [RenameColumn(("r", "x"), "ex")]),
            (True, [AddColumn(("deep", "element", f"z{number}"), parse_type("INT"))]),
        ]
        self.table = self.table.alter(self.rng.choice([one for may, one in some if may]))
        if self.rng.random() < 0.7:
            self.write()

    def _tag(self) -> None:
        ids = self.table.snapshots.ids()
        if ids:
            name, chosen = f"tag-{len(self.done)}", self.rng.choice(ids)
            if str(chosen) in self.known:
                self.table.create_tag(name, chosen)
                self.known[name] = self.known[str(chosen)]

    def _untag(self) -> None:
        tags = [name for name in self.known if not name.isdigit()]
        if tags:
            gone = self.rng.choice(tags)
            self.table.delete_tag(gone)
            del self.known[gone]

    def _expire(self) -> None:
        self.table.expire_snapshots(retain_min=1, retain_max=3, time_retained_ms=0)

    def _roll_back(self) -> None:
        ids = self.table.snapshots.ids()
        if len(ids) < 2:
            return
        target = self.rng.choice(ids[-3:-1])
        self.table.rollback_to(target)
        for name in list(self.known):
            if int(name) > target if name.isdigit() else self._is_gone(name):
                del self.known[name]
        latest = self.table.latest_snapshot()
        if latest is not None and latest.schema_id != self.table.schema.id:
            self.write()  # columns that were changed since are visible with the next commit

    def _is_gone(self, tag: str) -> bool:
        return not self.table.file_io.exists(self.table.layout.tag_file(tag))


def metadata_of(table: FileStoreTable) -> pathlib.Path:
    """The newest metadata file, as the hint says."""
    root = pathlib.Path(table.layout.root)
    directory = root / "metadata"
    if table.options.iceberg_storage == "hadoop-catalog":
        directory = root.parents[1] / "iceberg" / "db" / root.name / "metadata"
    version = (directory / "version-hint.text").read_text()
    return directory / f"v{version}.metadata.json"
