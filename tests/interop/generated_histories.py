# SPDX-License-Identifier: Apache-2.0
"""Random tables with a primary key and random operations on them, for Java and for us alike.

A history is dealt out from a seed and a number: merge engine × changelog producer × deletion
vectors × how compaction is chosen × buckets × partitions, a schema that suits the engine, and
commits of inserts, updates, deletes and `-U`/`+U` pairs over few keys.

Compactions must be the same on both sides, or what a changelog says of two commits may come in one
or in two pieces and a dropped delete may be forgotten earlier. Files of different writers are never
equally big, so sizes must not decide: histories either compact only when asked or when lookups
need it (`asked`), or a pick always grows to everything (`all`). How a pick of some runs grows by
their number alone is another matter between versions: see `AVOIDED`.
"""

import dataclasses
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from storage.format.metadata.schema import TableSchema, new_schema
from storage.format.types.types import DataField, parse_type
from tests.interop.generated_columns import Column, aggregated, key, plain, sequence

__all__ = ["AVOIDED", "SEED", "Commit", "History", "history"]

SEED = int(os.environ.get("LAKEWARD_SEED", "20250107"))
Row = tuple[str, tuple[Any, ...]]

AVOIDED: Mapping[str, str] = {
    "growth of a pick": (
        "2.0.0 ends the growth of a compaction at the first larger run, later versions (and we) "
        "take in the rest of level 0 and level 1 once it has begun"
    ),
    "nulls in collections": (
        "with changelog-producer.row-deduplicate Java takes an ARRAY or MAP that holds a null for "
        "changed or not, depending on how it lies in memory; to us equal ones are equal"
    ),
    "deleted rows in local lookup files": (
        "a writer of Java that makes a local file of a data file to look keys up in it takes no "
        "notice of deletion vectors that come later: a row that one of its compactions deletes is "
        "found again by the next one and, should its sequence.field be greater than that of the "
        "row written since, it comes back. With `lookup.cache-file-retention` of 1 ms, or by a "
        "writer of its own, the same rows stay deleted, as they always do with us. Histories with "
        "deletion vectors do not write a key again after a flush that took it back"
    ),
    "rbm64 in portable layout": "Java cannot read it; histories use the layout of Java",
    "random compaction by size": "files of two writers differ in size, so picks may differ",
}
"""What histories keep clear of, because versions of Java or the two writers differ there."""

_ENGINES = ("deduplicate", "partial-update", "aggregation", "first-row")
_PRODUCERS = ("none", "input", "lookup", "full-compaction")
_POLICIES: Mapping[str, Mapping[str, str]] = {
    "asked": {
        "num-sorted-run.compaction-trigger": "100",
        "compaction.size-ratio": "-100",
        "compaction.max-size-amplification-percent": "1000000",
    },
    "all": {"compaction.size-ratio": "1000000"},
}


@dataclasses.dataclass(frozen=True, slots=True)
class Commit:
    """One commit.

    Attributes:
        rows: kind and values in arrival order; none = only a compaction.
        compaction: `due` as the writer does by itself, `off`, `minor` when asked for, or `full`.
        flushed: numbers of rows after which the buffer is flushed and a compaction asked for.
    """

    rows: tuple[Row, ...]
    compaction: str
    flushed: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class History:
    """A table and what happens to it.

    Attributes:
        seed: of the whole run.
        number: of this history.
        columns: all of them in order, keys first.
        keys: primary key.
        partitions: partition keys.
        options: table options.
        commits: in order.
    """

    seed: int
    number: int
    columns: tuple[Column, ...]
    keys: tuple[str, ...]
    partitions: tuple[str, ...]
    options: Mapping[str, str]
    commits: tuple[Commit, ...]

    @property
    def name(self) -> str:
        """Short and telling."""
        options = self.options
        parts = [options["merge-engine"], options["changelog-producer"]]
        if options.get("deletion-vectors.enabled") == "true":
            parts.append("dv")
        return "-".join((f"{self.number:03}", *parts))

    def schema(self) -> TableSchema:
        """Schema 0 of the table."""
        fields = [
            DataField(id=0, name=column.name, type=parse_type(column.type))
            for column in self.columns
        ]
        return new_schema(
            fields,
            primary_keys=self.keys,
            partition_keys=self.partitions,
            options=self.options,
            now_ms=0,
        )


@dataclasses.dataclass(frozen=True, slots=True)
class _Engine:
    """What an engine needs: columns, options, and which kinds of rows it takes."""

    columns: Sequence[Column]
    options: Mapping[str, str]
    deletes: bool
    befores: bool


def history(seed: int, number: int) -> History:
    """The history of that number."""
    chance = random.Random(f"{seed}-{number}")
    engine_name = _ENGINES[number % 4]
    producer = _PRODUCERS[number // 4 % 4]
    if engine_name == "first-row" and producer not in ("none", "lookup"):
        engine_name = chance.choice(_ENGINES[:3])
    engine = _ENGINE[engine_name](chance)
    options = {
        "merge-engine": engine_name,
        "changelog-producer": producer,
        "bucket": chance.choice(("1", "1", "2", "-1")),
        **engine.options,
        **_producer_options(producer, engine.columns, chance),
        **_compaction_options(chance),
    }
    if chance.random() < 0.08:  # what the engine may refuse; then both have to
        engine = dataclasses.replace(engine, deletes=True, befores=True)
    vectors = engine_name != "first-row" and producer != "full-compaction"
    if vectors and chance.random() < 0.4:
        options["deletion-vectors.enabled"] = "true"
        if chance.random() < 0.3:
            options["deletion-vectors.bitmap64"] = "true"
    if chance.random() < 0.2:
        options["file.format"] = chance.choice(("avro", "orc"))
    keys = [key("k", chance)]
    if chance.random() < 0.3:
        keys.append(Column("k2", "STRING", lambda c: c.choice(("a", "bb")), nulls=0))
    partitions: tuple[str, ...] = ()
    if chance.random() < 0.25:
        keys.append(Column("p", "INT", lambda c: c.randrange(2), nulls=0))
        partitions = ("p",)
    columns = (*keys, *engine.columns)
    return History(
        seed=seed,
        number=number,
        columns=columns,
        keys=tuple(column.name for column in keys),
        partitions=partitions,
        options=options,
        commits=tuple(_commits(columns, len(keys), engine, options, chance)),
    )


# -------------------------------------------------------------------------------- options


def _producer_options(
    producer: str, columns: Sequence[Column], chance: random.Random
) -> Iterator[tuple[str, str]] | Mapping[str, str]:
    options: dict[str, str] = {}
    nested = any("<" in column.type for column in columns)  # see `AVOIDED`: nulls in collections
    if producer in ("lookup", "full-compaction") and not nested and chance.random() < 0.5:
        options["changelog-producer.row-deduplicate"] = "true"
        if chance.random() < 0.4:
            name = chance.choice(columns).name
            options["changelog-producer.row-deduplicate-ignore-fields"] = name
    return options


def _compaction_options(chance: random.Random) -> Mapping[str, str]:
    options = dict(_POLICIES[chance.choice(tuple(_POLICIES))])
    options.setdefault("num-sorted-run.compaction-trigger", str(chance.randint(2, 4)))
    options["num-levels"] = chance.choice(("3", "4", "6"))
    return options


def _sequenced(chance: random.Random, share: float) -> tuple[list[Column], dict[str, str]]:
    if chance.random() >= share:
        return [], {}
    columns = [sequence(name, chance) for name in ("s1", "s2")[: chance.randint(1, 2)]]
    options = {"sequence.field": ",".join(column.name for column in columns)}
    if chance.random() < 0.3:
        options["sequence.field.sort-order"] = "descending"
    return columns, options


def _some(chance: random.Random, most: int = 4) -> list[Column]:
    return [plain(f"v{number}", chance) for number in range(chance.randint(1, most))]


def _deduplicate(chance: random.Random) -> _Engine:
    order, options = _sequenced(chance, 0.5)
    columns = [*_some(chance), *order]
    if chance.random() < 0.15:
        options["ignore-delete"] = "true"
    if chance.random() < 0.15:
        kinds = Column("kind", "STRING", lambda c: c.choice(("+I", "-U", "+U", "-D")), nulls=0)
        columns.append(kinds)
        options["rowkind.field"] = "kind"
    chance.shuffle(columns)
    return _Engine(columns, options, deletes=True, befores=True)


def _partial_update(chance: random.Random) -> _Engine:
    mode = chance.choice(("plain", "ignore", "remove", "groups", "groups", "groups"))
    if mode == "groups":
        return _grouped(chance)
    order, options = _sequenced(chance, 0.3)
    columns = [*_some(chance), *order]
    chance.shuffle(columns)
    if mode == "ignore":
        options["ignore-delete"] = "true"
    elif mode == "remove":
        options["partial-update.remove-record-on-delete"] = "true"
    return _Engine(columns, options, deletes=mode != "plain", befores=mode != "plain")


def _grouped(chance: random.Random) -> _Engine:
    retracts = chance.random() < 0.6
    columns, options = _some(chance, 2), {}
    orders: list[str] = []
    for group in range(chance.randint(1, 2)):
        order = [sequence(f"g{group}{n}", chance, 0.25) for n in range(chance.randint(1, 2))]
        protected = [
            aggregated(f"a{group}{n}", chance, retracts=retracts)
            if chance.random() < 0.5
            else plain(f"a{group}{n}", chance)
            for n in range(chance.randint(1, 3))
        ]
        names = ",".join(column.name for column in order)
        options[f"fields.{names}.sequence-group"] = ",".join(c.name for c in protected)
        orders += [column.name for column in order]
        for column in protected:
            options |= column.options
        columns += [*order, *protected]
    chance.shuffle(columns)
    if retracts and chance.random() < 0.4:
        options["partial-update.remove-record-on-sequence-group"] = chance.choice(orders)
    elif not retracts and chance.random() < 0.5:
        options["ignore-delete"] = "true"
    takes = retracts or "ignore-delete" in options
    return _Engine(columns, options, deletes=takes, befores=takes)


def _aggregation(chance: random.Random) -> _Engine:
    mode = chance.choice(("adds", "retracts", "retracts", "removes"))
    order, options = _sequenced(chance, 0.25)
    columns = [
        aggregated(f"a{number}", chance, retracts=mode == "retracts")
        for number in range(chance.randint(2, 5))
    ]
    if mode == "removes":
        options["aggregation.remove-record-on-delete"] = "true"
    for column in columns:
        options |= column.options
    if chance.random() < 0.3:
        columns.append(plain("other", chance))
    columns += order
    chance.shuffle(columns)
    return _Engine(columns, options, deletes=mode != "adds", befores=mode == "retracts")


def _first_row(chance: random.Random) -> _Engine:
    ignores = chance.random() < 0.5
    options = {"ignore-delete": "true"} if ignores else {}
    return _Engine(_some(chance), options, deletes=ignores, befores=ignores)


_ENGINE = {
    "deduplicate": _deduplicate,
    "partial-update": _partial_update,
    "aggregation": _aggregation,
    "first-row": _first_row,
}


# -------------------------------------------------------------------------------- commits


def _commits(
    columns: Sequence[Column],
    keys: int,
    engine: _Engine,
    options: Mapping[str, str],
    chance: random.Random,
) -> Iterator[Commit]:
    known: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for _ in range(chance.randint(4, 9)):
        how = chance.choice(("due", "due", "due", "off", "minor", "full"))
        rows: list[Row] = []
        if chance.random() > 0.12:
            for _ in range(chance.choice((1, 2, 4, 8))):
                rows += _operation(columns, keys, engine, known, chance)
        elif how in ("due", "off"):
            how = "full"
        cuts = chance.sample(range(1, len(rows)), 1) if len(rows) > 4 and how != "off" else []
        if chance.random() >= 0.3 or any(
            _comes_back(rows, cut, columns, keys, options) for cut in cuts
        ):
            cuts = []
        yield Commit(tuple(rows), how, tuple(cuts))


def _comes_back(
    rows: Sequence[Row],
    cut: int,
    columns: Sequence[Column],
    keys: int,
    options: Mapping[str, str],
) -> bool:
    """Whether a key is taken back before a flush and written after it; see `AVOIDED`."""
    if options.get("deletion-vectors.enabled") != "true":
        return False
    names = [column.name for column in columns]
    place = names.index(options["rowkind.field"]) if "rowkind.field" in options else None
    gone = {
        values[:keys]
        for kind, values in rows[:cut]
        if (kind if place is None else values[place]) in ("-U", "-D")
    }
    return any(values[:keys] in gone for _, values in rows[cut:])


def _operation(
    columns: Sequence[Column],
    keys: int,
    engine: _Engine,
    known: dict[tuple[Any, ...], tuple[Any, ...]],
    chance: random.Random,
) -> list[Row]:
    """One insert, update, pair or delete of a key."""
    row = tuple(column.value(chance) for column in columns)
    key = row[:keys]
    before = known.get(key)
    other = before if before is not None and chance.random() < 0.7 else row
    what = chance.choice(("insert", "insert", "update", "pair", "delete", "before"))
    if (what == "delete" and engine.deletes) or (
        what == "before" and engine.befores and chance.random() < 0.3
    ):
        known.pop(key, None)
        return [("-D" if what == "delete" else "-U", other)]
    known[key] = row
    if what == "pair" and engine.befores and before is not None:
        return [("-U", before), ("+U", row)]
    return [("+U" if what == "update" else "+I", row)]
