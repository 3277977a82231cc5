# SPDX-License-Identifier: Apache-2.0
"""Generated tables for the interop tests: random schemas, options and rows from one seed.

`cases(seed)` deals the values of every dimension out like cards, so that each occurs at least once
in `COUNT` cases whatever the seed; combinations that Paimon refuses are put right by `_settled`.
A case is plain data: nothing of it depends on who will carry it out.
"""

import dataclasses
import functools
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from storage.format.metadata.schema_changes import (
    AddColumn,
    DropColumn,
    MoveColumn,
    RenameColumn,
    SchemaChange,
    UpdateType,
)
from storage.format.types.types import DataField, DataType, RowType, parse_type
from tests.interop.generated_values import ODD_TEXTS, Chance, random_value

__all__ = [
    "COUNT",
    "DIMENSIONS",
    "NESTED",
    "SCALARS",
    "SEED",
    "SPARK_LACKS",
    "Alter",
    "Case",
    "Delete",
    "Step",
    "Write",
    "cases",
    "coverage",
]

SEED = int(os.environ.get("LAKEWARD_SEED", "20261121"))
COUNT = 72

DIMENSIONS: Mapping[str, Sequence[str]] = {
    "table": ("pk-fixed", "pk-dynamic", "pk-cross", "append-unaware", "append-fixed", "pk-fixed"),
    "buckets": ("1", "2", "5"),
    "format": ("parquet", "orc", "avro"),
    "partitions": ("0", "1", "2"),
    "deletion-vectors": ("off", "bitmap32", "off", "bitmap64"),
    "file-index": ("none", "bloom-filter", "bitmap", "bsi", "range-bitmap", "none"),
    "index-place": ("embedded", "beside"),
    "compression": ("zstd", "snappy", "lz4", "none"),
    "stats": ("truncate(16)", "full", "counts", "none"),
    "thin": ("false", "true"),
    "bucket-function": ("default", "default", "mod", "hive"),
    "target-file-size": ("128 mb", "4 kb"),
    "compaction": ("due", "none", "full"),
    "evolution": ("none", "add", "rename", "drop", "widen", "move", "nested-add"),
    "key": ("BIGINT", "STRING", "INT", "DATE", "DECIMAL(12, 2)", "TIMESTAMP(3)", "VARBINARY(8)"),
    "level-0-format": ("same", "same", "avro", "orc"),
}

SCALARS = (
    "BOOLEAN",
    "TINYINT",
    "SMALLINT",
    "INT",
    "BIGINT",
    "FLOAT",
    "DOUBLE",
    "CHAR(5)",
    "VARCHAR(12)",
    "STRING",
    "BINARY(4)",
    "VARBINARY(9)",
    "BYTES",
    "DECIMAL(9, 2)",
    "DECIMAL(18, 6)",
    "DECIMAL(38, 10)",
    "DATE",
    "TIME(0)",
    "TIME(3)",
    "TIMESTAMP(0)",
    "TIMESTAMP(3)",
    "TIMESTAMP(6)",
    "TIMESTAMP(9)",
    "TIMESTAMP(3) WITH LOCAL TIME ZONE",
    "TIMESTAMP(6) WITH LOCAL TIME ZONE",
    "TIMESTAMP(9) WITH LOCAL TIME ZONE",
    "INT NOT NULL",
    "STRING NOT NULL",
)
NESTED = (
    "ARRAY<INT>",
    "ARRAY<STRING NOT NULL>",
    "MAP<STRING, INT>",
    "MAP<INT, DECIMAL(18, 6)>",
    "MULTISET<STRING>",
    "ROW<a INT, b STRING>",
    "ARRAY<ROW<a BIGINT, b DATE>>",
    "MAP<STRING, ARRAY<BIGINT>>",
    "ROW<x ROW<y DATE, z ARRAY<TIMESTAMP(3)>>, w DOUBLE>",
)
PARTITION_TYPES = ("STRING", "INT", "DATE", "BOOLEAN", "BIGINT", "SMALLINT", "DECIMAL(8, 2)")
AVRO_LACKS = ("(9)",)
"""Avro data files have no timestamps finer than microseconds, in Java neither."""
INDEXED = {
    "bloom-filter": ("INT", "BIGINT", "STRING", "DATE", "VARBINARY(9)"),
    "bitmap": ("INT", "BIGINT", "STRING", "DATE", "BOOLEAN", "TINYINT"),
    "bsi": ("INT", "BIGINT", "SMALLINT", "DATE", "TIMESTAMP(3)"),
    "range-bitmap": ("INT", "BIGINT", "STRING", "DATE", "TINYINT", "DOUBLE", "TIMESTAMP(6)"),
}
WIDER = (("TINYINT", "INT"), ("INT", "BIGINT"), ("FLOAT", "DOUBLE"), ("VARCHAR(12)", "STRING"))


SPARK_LACKS: Mapping[tuple[str, str], str] = {
    ("deletion-vectors", "bitmap64"): "bitmap32",
    ("thin", "true"): "false",
    ("compression", "none"): "zstd",
    ("bucket-function", "mod"): "default",
    ("bucket-function", "hive"): "default",
    ("file-index", "bsi"): "bloom-filter",
    ("file-index", "range-bitmap"): "bitmap",
    ("evolution", "nested-add"): "add",
    ("key", "TIMESTAMP(3)"): "TIMESTAMP(6)",
    ("key", "VARBINARY(8)"): "BYTES",
}
SPARK_TYPES = (
    (r"TIME\(\d\)", "INT"),
    (r"TIMESTAMP\(\d\)", "TIMESTAMP(6)"),
    (r"(VAR)?BINARY\(\d\)", "BYTES"),
    (r"MULTISET<STRING>", "MAP<STRING, INT>"),
    (r"ROW<x ROW<.*", "ROW<a INT, b STRING>"),  # 0.9 fails to read and write a ROW of ROWs
)


@dataclasses.dataclass(frozen=True, slots=True)
class Write:
    """One commit.

    Attributes:
        rows: kind and values, in arrival order.
        compaction: `none`, `due` or `full`.
    """

    rows: tuple[tuple[str, tuple[Any, ...]], ...]
    compaction: str


@dataclasses.dataclass(frozen=True, slots=True)
class Alter:
    """One change of the schema."""

    change: SchemaChange


@dataclasses.dataclass(frozen=True, slots=True)
class Delete:
    """Rows of an append table deleted by the values of column `id`."""

    ids: frozenset[int]


Step = Write | Alter | Delete


@dataclasses.dataclass(frozen=True)
class Case:
    """A table and what happens to it.

    Attributes:
        number: from 0; the name begins with it.
        columns: name and type, in order.
        keys: primary key; empty on append tables.
        partitions: partition keys.
        options: table options.
        generate_steps: gives the steps, once.
        dimensions: the value that each of `DIMENSIONS` took, `-` where it does not apply.
    """

    number: int
    columns: tuple[tuple[str, DataType], ...]
    keys: tuple[str, ...]
    partitions: tuple[str, ...]
    options: Mapping[str, str]
    generate_steps: Callable[[], Iterator[Step]] = dataclasses.field(compare=False)
    dimensions: Mapping[str, str]

    @functools.cached_property
    def steps(self) -> tuple[Step, ...]:
        """Writes, schema changes and deletions in order; most runs need those of few cases."""
        return tuple(self.generate_steps())

    @property
    def name(self) -> str:
        """Short and telling."""
        told = ("table", "buckets", "format", "partitions", "deletion-vectors", "evolution")
        parts = [self.dimensions[key] for key in told if self.dimensions[key] not in ("-", "none")]
        return "-".join((f"{self.number:02}", *parts))

    @staticmethod
    def with_field(row: RowType, name: str, type_: DataType) -> RowType:
        """A ROW type with one more field at the end."""
        return dataclasses.replace(
            row, fields=(*row.fields, DataField(id=0, name=name, type=type_))
        )


@functools.cache
def cases(
    seed: int = SEED,
    count: int = COUNT,
    *,
    spark: bool = False,
    turns: int = 0,
    only: int | None = None,
) -> tuple[Case, ...]:
    """Generate the cases of a seed; the same for the same arguments, and generated once.

    Args:
        seed: of everything.
        count: how many.
        spark: leave out what Spark SQL or the 0.9 of its connector lacks (`SPARK_LACKS`).
        turns: writes of each case; 0: four and what the case's dimensions add.
        only: generate this one case instead of all.
    """
    decks = {
        name: _deal(Chance(f"{seed}-{name}"), values, count) for name, values in DIMENSIONS.items()
    }
    scalars = _deal(Chance(f"{seed}-scalars"), SCALARS, count * 6)
    nested = _deal(Chance(f"{seed}-nested"), NESTED, count)
    found = []
    for number in range(count) if only is None else (only,):
        dealt = {name: deck[number] for name, deck in decks.items()}
        types = [*scalars[number * 6 : number * 6 + 6], nested[number]]
        if spark:
            dealt = {k: SPARK_LACKS.get((k, v), v) for k, v in dealt.items()}
            types = [_for_spark(text) for text in types]
        chance = Chance(f"{seed}-{number}")
        chance.hollow_rows = not spark  # Java 0.9 takes such a ROW of a Parquet file for null
        found.append(_Builder(chance, number, dealt, types, spark=spark).case(turns))
    return tuple(found)


def coverage(found: Sequence[Case]) -> Counter[tuple[str, str]]:
    """How often each value of each dimension, and each type, occurs."""
    counts = Counter(item for case in found for item in case.dimensions.items())
    for case in found:
        counts.update(("type", case_type) for case_type in _type_texts(case))
    return counts


def _type_texts(case: Case) -> Iterator[str]:
    yield from case.dimensions["types"].split("; ")


def _for_spark(text: str) -> str:
    for lacking, instead in SPARK_TYPES:
        text = re.sub(lacking, instead, text)
    return text


def _deal(chance: Chance, values: Sequence[str], count: int) -> list[str]:
    dealt: list[str] = []
    while len(dealt) < count:
        deck = list(values)
        chance.shuffle(deck)
        dealt += deck
    return dealt[:count]


class _Builder:
    """Makes one case."""

    def __init__(
        self,
        chance: Chance,
        number: int,
        dealt: dict[str, str],
        types: list[str],
        *,
        spark: bool,
    ) -> None:
        self._spark = spark
        self._chance = chance
        self._number = number
        self._dealt = dealt
        self._types = types
        self._settle()
        self._next_id = 0

    def case(self, turns: int) -> Case:
        dealt = self._dealt
        partitions = [
            (f"p{n}", parse_type(self._chance.choice(PARTITION_TYPES)))
            for n in range(int(dealt["partitions"]))
        ]
        values = [(f"c{n}", parse_type(text)) for n, text in enumerate(self._types)]
        pk = self._dealt["table"].startswith("pk")
        key = [("k", parse_type(dealt["key"]))] if pk else [("id", parse_type("BIGINT"))]
        self._columns = [*partitions, *key, *values]
        self._partitions = tuple(name for name, _ in partitions)
        keys: tuple[str, ...] = ()
        if pk:
            inside = () if dealt["table"] == "pk-cross" else self._partitions
            keys = (*inside, "k")
        self._keys = keys
        self._columns = [
            (name, dataclasses.replace(type_, nullable=False) if name in keys else type_)
            for name, type_ in self._columns
        ]
        texts = [text for text in ODD_TEXTS if self._can_look_up(text)]
        self._places = {
            name: _distinct(self._chance, type_, 3, texts) for name, type_ in partitions
        }
        columns = tuple(self._columns)
        options = self._options()
        return Case(
            number=self._number,
            columns=columns,
            keys=keys,
            partitions=self._partitions,
            options=options,
            generate_steps=functools.partial(self._turns, turns) if turns else self._steps,
            dimensions={**dealt, "types": "; ".join(self._types)},
        )

    def _spark_has(self, text: str) -> bool:
        """Whether Spark has the type; its 0.9 connector cannot index BOOLEAN by bitmap."""
        return not self._spark or (_for_spark(text) == text and text != "BOOLEAN")

    def _can_look_up(self, partition: str) -> bool:
        """Java names temporary files of its lookups after the partition, slashes and all."""
        looks_up = self._keys and self._dealt["deletion-vectors"] != "off"
        return not looks_up or "/" not in partition

    # ------------------------------------------------------------------------ dimensions

    def _settle(self) -> None:
        """Put combinations right that Paimon refuses or that mean nothing."""
        dealt = self._dealt
        table = dealt["table"]
        if table == "pk-cross" and dealt["partitions"] == "0":
            dealt["partitions"] = "1"
        if table in ("pk-dynamic", "pk-cross", "append-unaware"):
            dealt["buckets"] = dealt["bucket-function"] = "-"
        if dealt["bucket-function"] == "mod":
            dealt["key"] = "BIGINT" if table == "pk-fixed" else dealt["key"]
        if dealt["bucket-function"] == "hive" and dealt["key"].startswith("TIMESTAMP"):
            dealt["key"] = "STRING"
        if not table.startswith("pk"):
            dealt["key"] = dealt["thin"] = dealt["level-0-format"] = "-"
        elif dealt["deletion-vectors"] != "off" and dealt["compaction"] == "none":
            dealt["compaction"] = "due"  # rows of level 0 would stay invisible
        if dealt["file-index"] == "none":
            dealt["index-place"] = "-"
        else:
            kept = [text for text in INDEXED[dealt["file-index"]] if self._spark_has(text)]
            self._types[0] = self._chance.choice(kept)
        if "avro" in (dealt["format"], dealt["level-0-format"]):
            self._types = [
                text.replace("(9)", "(6)") if text.startswith("TIMESTAMP") else text
                for text in self._types
            ]
            if dealt["compression"] in ("lz4", "none"):  # no codecs of these names in Avro files
                dealt["compression"] = {"lz4": "snappy", "none": "zstd"}[dealt["compression"]]
        if dealt["evolution"] == "widen":
            self._types[1] = self._chance.choice(WIDER)[0]
        if dealt["evolution"] == "nested-add":
            self._types[-1] = "ROW<a INT, b STRING>"

    def _options(self) -> dict[str, str]:
        dealt = self._dealt
        pk = dealt["table"].startswith("pk")
        options = {
            "bucket": "-1" if dealt["buckets"] == "-" else dealt["buckets"],
            "file.format": dealt["format"],
            "file.compression": dealt["compression"],
            "metadata.stats-mode": dealt["stats"],
            "target-file-size": dealt["target-file-size"],
            "num-sorted-run.compaction-trigger": "3",
        }
        if dealt["table"] == "append-fixed":
            options["bucket-key"] = "id"
        if dealt["table"] == "pk-dynamic":
            options["dynamic-bucket.target-row-num"] = "20"
        if dealt["bucket-function"] in ("mod", "hive"):
            options["bucket-function.type"] = dealt["bucket-function"]
        if pk:
            options["data-file.thin-mode"] = dealt["thin"]
            if dealt["level-0-format"] != "same":
                options["file.format.per.level"] = f"0:{dealt['level-0-format']}"
        if dealt["deletion-vectors"] != "off":
            options["deletion-vectors.enabled"] = "true"
            if dealt["deletion-vectors"] == "bitmap64":
                options["deletion-vectors.bitmap64"] = "true"
        if dealt["file-index"] != "none":
            options[f"file-index.{dealt['file-index']}.columns"] = "c0"
            place = "1 mb" if dealt["index-place"] == "embedded" else "1 b"
            options["file-index.in-manifest-threshold"] = place
        return options

    # ----------------------------------------------------------------------------- steps

    def _steps(self) -> Iterator[Step]:
        pk = bool(self._keys)
        compaction = self._dealt["compaction"]
        usual = "none" if compaction == "none" else "due"
        yield Write(self._rows(40, fresh=1.0), usual)
        yield Write(self._rows(25, fresh=0.4), usual)
        if not pk and self._dealt["deletion-vectors"] != "off":
            yield Delete(frozenset(self._chance.sample(range(self._next_id), 12)))
        yield from self._evolution()
        yield Write(self._rows(20, fresh=0.4), usual)
        yield Write(self._rows(10, fresh=0.2), usual)
        if not pk and self._dealt["deletion-vectors"] != "off":
            yield Delete(frozenset(self._chance.sample(range(self._next_id), 9)))
        if compaction == "full":
            yield Write((), "full")

    def _turns(self, count: int) -> Iterator[Step]:
        """Many small writes, the schema change in their middle."""
        usual = "none" if self._dealt["compaction"] == "none" else "due"
        for turn in range(count):
            if turn == count // 2:
                yield from self._evolution()
            yield Write(self._rows(12, fresh=0.5), usual)

    def _rows(self, count: int, fresh: float) -> tuple[tuple[str, tuple[Any, ...]], ...]:
        rows = []
        for _ in range(count):
            old = not self._keys or self._chance.random() >= fresh
            kind = "+I"
            if self._keys and old and self._next_id:
                kind = self._chance.choice(("+U", "+U", "-D"))
            rows.append((kind, tuple(self._row(new=not old or not self._keys))))
        return tuple(rows)

    def _row(self, new: bool) -> Iterator[Any]:
        number = (
            self._next_id if new or not self._next_id else self._chance.randrange(self._next_id)
        )
        self._next_id = max(self._next_id, number + 1)
        key = Chance(f"{self._number}-key-{number}")
        for name, type_ in self._columns:
            if name == "k":
                yield random_value(key, type_)
            elif name == "id":
                yield number
            elif name in self._places:
                yield (key if name in self._keys else self._chance).choice(self._places[name])
            else:
                value = random_value(self._chance, type_)
                if name == "c0" and self._dealt["file-index"] == "bsi" and value == -(2**63):
                    value = 0  # Java fails to write a bit-slice index of this one number
                yield value

    def _evolution(self) -> Iterator[Step]:
        names = [name for name, _ in self._columns]
        match self._dealt["evolution"]:
            case "add":
                column = ("added", parse_type("DECIMAL(20, 3)"))
                yield Alter(AddColumn(*column, after="c2"))
                self._columns.insert(names.index("c2") + 1, column)
            case "rename":
                yield Alter(RenameColumn("c2", "renamed"))
                self._columns[names.index("c2")] = ("renamed", self._columns[names.index("c2")][1])
            case "drop":
                yield Alter(DropColumn("c3"))
                del self._columns[names.index("c3")]
            case "widen":
                wider = parse_type(dict(WIDER)[self._types[1]])
                yield Alter(UpdateType("c1", wider))
                self._columns[names.index("c1")] = ("c1", wider)
            case "move":
                yield Alter(MoveColumn("c4", first=True))
                self._columns.insert(0, self._columns.pop(names.index("c4")))
            case "nested-add":
                type_ = parse_type("BIGINT")
                yield Alter(AddColumn(("c6", "extra"), type_))
                row = self._columns[names.index("c6")][1]
                assert isinstance(row, RowType)
                self._columns[names.index("c6")] = ("c6", Case.with_field(row, "extra", type_))
            case _:
                pass


def _distinct(chance: Chance, type_: DataType, count: int, texts: Sequence[str]) -> list[Any]:
    """Different values without null, with odd ones among the strings."""
    solid = dataclasses.replace(type_, nullable=False)
    if "VARCHAR" in str(getattr(type_, "root", "")):
        return chance.sample(list(texts), count)
    return list({repr(v): v for v in (random_value(chance, solid) for _ in range(count))}.values())
