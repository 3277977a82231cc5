# SPDX-License-Identifier: Apache-2.0
"""The columns of a system table, declared as text, and its Arrow table from one dictionary per row.

Rows here are objects of metadata: one per snapshot, file or bucket, never one per row of data.
Partitions are shown as a row cast to text, `{1, a}`; keys and statistics as the texts that Java's
collections give to the values as Paimon holds them, so a date is its days (SEMANTICS.md §I).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from storage.clock import local_of_epoch_ms
from storage.format.metadata.layout import value_text
from storage.format.metadata.schema import TableSchema
from storage.format.metadata.snapshot import Snapshot
from storage.format.row.binary_row import decode_row
from storage.format.row.row_codec import RowValue
from storage.format.types.types import AtomicType, DataField, TypeRoot
from storage.io.object_store_options import redacted_options
from storage.options.options import find_option
from storage.options.table import REST_PREFIX
from storage.table.core import TableCore
from storage.table.scan.time_travel import chosen_snapshot

_BYTES = frozenset({TypeRoot.BINARY, TypeRoot.VARBINARY})


def partition_text(schema: TableSchema, partition: bytes) -> str:
    """A framed partition row as text; `{}` of an unpartitioned table."""
    fields = schema.partition_fields
    values = decode_row(partition, [field.type for field in fields])
    texts = (cast_text(value, field) for value, field in zip(values, fields, strict=True))
    return "{" + ", ".join(texts) + "}"


def cast_text(value: RowValue, field: DataField) -> str:
    """A value cast to a string."""
    return "null" if value is None else value_text(value, field, legacy=False)


def key_text(values: Sequence[RowValue], fields: Sequence[DataField]) -> str:
    """A key as the text of a Java array, `[a, 1]`."""
    texts = (field_text(value, field) for value, field in zip(values, fields, strict=True))
    return "[" + ", ".join(texts) + "]"


def map_text(values: Mapping[str, str]) -> str:
    """The text of a sorted Java map, `{a=1, b=null}`."""
    return "{" + ", ".join(f"{name}={values[name]}" for name in _java_sorted(values)) + "}"


def field_text(value: RowValue, field: DataField) -> str:
    """A value as the text of the object that Paimon holds."""
    if value is None:
        return "null"
    type_ = field.type
    if not isinstance(type_, AtomicType):
        return str(value)
    if type_.root in _BYTES:
        return bytes(value).hex()  # Java shows an address, which says nothing
    if type_.root is TypeRoot.DECIMAL:
        return f"{value:f}"
    return value_text(value, field, legacy=True)


def _java_sorted(names: Iterable[str]) -> list[str]:
    return sorted(names, key=lambda name: name.encode("utf-16-be", "surrogatepass"))


_VECTOR = pa.struct(
    [
        pa.field("f0", pa.string(), nullable=False),
        pa.field("f1", pa.int32(), nullable=False),
        pa.field("f2", pa.int32(), nullable=False),
        pa.field("_CARDINALITY", pa.int64()),
    ]
)
_TYPES = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "text": pa.string(),
    "time": pa.timestamp("ms"),  # TIMESTAMP(3): a wall clock without zone
    "texts": pa.list_(pa.field("element", pa.string())),
    "vectors": pa.list_(pa.field("element", _VECTOR)),
}


def schema_of(declared: str) -> pa.Schema:
    """The columns of a table: `name type`, separated by commas; `type?` where it may be null."""
    pairs = (column.split() for column in declared.split(","))
    return pa.schema(
        [pa.field(name, _TYPES[type_.rstrip("?")], type_.endswith("?")) for name, type_ in pairs]
    )


def table_of(schema: pa.Schema, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """A table of rows that are given as values by column; a column that a row lacks is null."""
    return pa.Table.from_pylist([dict(row) for row in rows], schema=schema)


def local_time(epoch_ms: int | None) -> int | None:
    """A moment [epoch ms] as Java shows it: the wall clock of the machine's zone."""
    return None if epoch_ms is None else local_of_epoch_ms(epoch_ms)


def shown_snapshot(table: TableCore) -> Snapshot | None:
    """The snapshot that the table's options choose, else the newest; None when there is none."""
    return chosen_snapshot(table)[0]


# Options of a table as they are shown.


def shown_options(options: Mapping[str, str]) -> dict[str, str]:
    """Options of a table fit to be shown: others than table options may be secrets of a store."""
    hidden = redacted_options(options)
    return {
        key: text if find_option(key) and not key.startswith(REST_PREFIX) else hidden[key]
        for key, text in options.items()
    }
