# SPDX-License-Identifier: Apache-2.0
"""Random columns of any type, and files of any format, for round trips."""

import datetime
import decimal
import pathlib
import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from hypothesis import settings
from hypothesis import strategies as st

from storage.format.files.file_formats import open_sink, read_batches
from storage.format.files.row_selection import RowSelection
from storage.format.row.row_codec import Timestamp, from_row_values
from storage.format.types.types import (
    ArrayType,
    AtomicType,
    DataField,
    DataType,
    MapType,
    MultisetType,
    RowType,
    TypeRoot,
    arrow_field,
    parse_type,
)
from storage.io.local import LocalFileIO

STORE = LocalFileIO()
QUICK = settings(max_examples=60, deadline=None, derandomize=True, database=None)
SEEDS = st.integers(0, 1 << 32)

ATOMIC_TEXTS = (
    "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(9, 2)",
    "DECIMAL(18, 4)", "DECIMAL(38, 10)", "VARCHAR(20)", "STRING", "BYTES", "VARBINARY(30)", "DATE",
    "TIME(3)", "TIMESTAMP(3)", "TIMESTAMP(6)", "TIMESTAMP(3) WITH LOCAL TIME ZONE",
    "TIMESTAMP(6) WITH LOCAL TIME ZONE",
)  # fmt: skip
NANOSECONDS = ("TIMESTAMP(9)", "TIMESTAMP(9) WITH LOCAL TIME ZONE")

_BITS = {TypeRoot.TINYINT: 7, TypeRoot.SMALLINT: 15, TypeRoot.INT: 31, TypeRoot.BIGINT: 63}
_FIRST_MILLI, _LAST_MILLI = -2_208_988_800_000, 9_214_646_400_999
_EPOCH = datetime.date(1970, 1, 1).toordinal()


def random_type(chance: random.Random, atomic: Sequence[str], depth: int = 0) -> DataType:
    """A type up to three deep; `atomic` are the texts of the leaves."""
    nullable = chance.random() < 0.7
    shape = chance.choice(("leaf", "array", "map", "multiset", "row")) if depth < 3 else "leaf"
    if shape == "leaf":
        text = chance.choice(atomic)
        return parse_type(text if nullable else f"{text} NOT NULL")
    if shape == "row":
        parts = [random_type(chance, atomic, depth + 1) for _ in range(chance.randint(1, 3))]
        ids = 100 * (depth + 1)
        return RowType(
            tuple(DataField(id=ids + i, name=f"f{i}", type=part) for i, part in enumerate(parts)),
            nullable,
        )
    if shape == "array":
        return ArrayType(random_type(chance, atomic, depth + 1), nullable)
    key = parse_type(chance.choice(("INT NOT NULL", "STRING NOT NULL", "BIGINT NOT NULL")))
    if shape == "multiset":
        return MultisetType(key, nullable)
    return MapType(key, random_type(chance, atomic, depth + 1), nullable)


def random_value(chance: random.Random, type_: DataType, first_milli: int) -> Any:
    """A value of a type in the form of `row_codec`."""
    if type_.nullable and chance.random() < 0.25:
        return None
    count = chance.choice((0, 1, 1, 2, 3))
    match type_:
        case AtomicType():
            return _atomic(chance, type_, first_milli)
        case ArrayType(element=element):
            return [random_value(chance, element, first_milli) for _ in range(count)]
        case MultisetType(element=key):
            keys = {random_value(chance, key, first_milli) for _ in range(count)}
            return [(key, chance.randint(1, 9)) for key in sorted(keys)]
        case MapType(key=key, value=value):
            keys = {random_value(chance, key, first_milli) for _ in range(count)}
            return [(key, random_value(chance, value, first_milli)) for key in sorted(keys)]
        case RowType(fields=fields):
            return tuple(random_value(chance, field.type, first_milli) for field in fields)


def _atomic(chance: random.Random, type_: AtomicType, first_milli: int) -> Any:
    root = type_.root
    if root in _BITS:
        return chance.getrandbits(chance.randint(1, _BITS[root])) * chance.choice((1, -1))
    match root:
        case TypeRoot.TIMESTAMP | TypeRoot.TIMESTAMP_LTZ:
            step = {3: 1_000_000, 6: 1_000, 9: 1}[type_.precision]
            nanos = chance.randrange(1_000_000) // step * step
            return Timestamp(chance.randint(first_milli, _LAST_MILLI), nanos)
        case TypeRoot.DECIMAL:
            digits = 10 ** chance.randint(1, type_.precision) - 1
            unscaled = decimal.Decimal(chance.randint(-digits, digits))
            return unscaled.scaleb(-type_.scale, decimal.Context(prec=60))
        case TypeRoot.BOOLEAN:
            return chance.random() < 0.5
        case TypeRoot.FLOAT | TypeRoot.DOUBLE:
            return chance.choice((0.0, -0.0, 1.5, -(2.0**100), float("inf")))
        case TypeRoot.VARCHAR:
            return "".join(chance.choices("ab é中😀\0", k=chance.randint(0, 20)))
        case TypeRoot.VARBINARY:
            return chance.randbytes(chance.randint(0, 30))
        case TypeRoot.DATE:
            return chance.randint(1 - _EPOCH, 2_932_896)
        case _:
            return chance.randrange(86_400_000)


def random_table(
    seed: int, atomic: Sequence[str], *, first_milli: int = _FIRST_MILLI
) -> tuple[tuple[DataField, ...], pa.RecordBatch]:
    """Fields and a batch of up to 30 rows, the same for the same seed."""
    chance = random.Random(seed)
    parts = [random_type(chance, atomic) for _ in range(chance.randint(1, 4))]
    fields = tuple(DataField(id=i, name=f"c{i}", type=part) for i, part in enumerate(parts))
    count = chance.randint(2, 30)
    columns = [[random_value(chance, f.type, first_milli) for _ in range(count)] for f in fields]
    return fields, batch_of(fields, columns)


def batch_of(fields: Sequence[DataField], columns: Sequence[Sequence[object]]) -> pa.RecordBatch:
    """A batch of row values, one list per field."""
    arrays = [from_row_values(c, f.type) for c, f in zip(columns, fields, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([arrow_field(f) for f in fields]))


def fields_of(*columns: tuple[str, str | DataType]) -> tuple[DataField, ...]:
    """Fields of (name, type or its text), numbered from 0."""
    return tuple(
        DataField(id=i, name=name, type=parse_type(type_) if isinstance(type_, str) else type_)
        for i, (name, type_) in enumerate(columns)
    )


def write_file(
    path: str, fields: Sequence[DataField], batches: Sequence[pa.RecordBatch], **options: object
) -> int:
    """Write a file of the format its name tells; gives the size the sink says."""
    file_format = path.rpartition(".")[2]
    with STORE.open_output(path) as output:
        sink = open_sink(file_format, output, fields, **options)  # type: ignore[arg-type]
        for batch in batches:
            sink.write(batch.columns)
        sink.close()
        return sink.size


def read_file(
    path: str,
    fields: Sequence[DataField],
    *,
    batch_rows: int = 1000,
    selection: RowSelection | None = None,
) -> list[pa.RecordBatch]:
    """All batches of a file."""
    file_format = path.rpartition(".")[2]
    return list(
        read_batches(file_format, STORE, path, fields, batch_rows=batch_rows, selection=selection)
    )


def assert_random_rows_come_back(
    directory: pathlib.Path,
    file_format: str,
    seed: int,
    atomic: Sequence[str] = (*ATOMIC_TEXTS, *NANOSECONDS),
) -> None:
    """Two batches of a random table, written to one file of a format, are read as they were."""
    fields, batch = random_table(seed, atomic)
    path = str(directory / f"data-0.{file_format}")
    write_file(path, fields, [batch, batch.slice(1)])
    found = pa.Table.from_batches(read_file(path, fields))
    assert found.slice(0, batch.num_rows) == pa.Table.from_batches([batch])
    assert found.slice(batch.num_rows) == pa.Table.from_batches([batch]).slice(1)
