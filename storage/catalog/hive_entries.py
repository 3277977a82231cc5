# SPDX-License-Identifier: Apache-2.0
"""Entries of the Hive metastore for tables, partitions and views, as Paimon writes them."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from storage.catalog.options import table_properties
from storage.catalog.view import COMMENT, View
from storage.clients.hive_client import thrift
from storage.errors import UnsupportedFeatureError
from storage.format.metadata.schema import TableSchema
from storage.format.types.types import (
    MAX_LENGTH,
    ArrayType,
    AtomicType,
    DataField,
    DataType,
    MapType,
    MultisetType,
    RowType,
    TypeRoot,
)
from storage.options.options import TableOptions

_LONGEST_CHAR = 255
_LONGEST_VARCHAR = 65_535

_NAMES = {
    TypeRoot.BOOLEAN: "boolean",
    TypeRoot.TINYINT: "tinyint",
    TypeRoot.SMALLINT: "smallint",
    TypeRoot.INT: "int",
    TypeRoot.BIGINT: "bigint",
    TypeRoot.FLOAT: "float",
    TypeRoot.DOUBLE: "double",
    TypeRoot.BINARY: "binary",
    TypeRoot.VARBINARY: "binary",
    TypeRoot.DATE: "date",
    TypeRoot.TIME: "string",
    TypeRoot.TIMESTAMP: "timestamp",
    TypeRoot.TIMESTAMP_LTZ: "timestamp with local time zone",
}

_ATOMS = {
    name: AtomicType(root)
    for root, name in _NAMES.items()
    if root not in (TypeRoot.BINARY, TypeRoot.VARBINARY, TypeRoot.TIME)
} | {
    "string": AtomicType(TypeRoot.VARCHAR, length=MAX_LENGTH),
    "binary": AtomicType(TypeRoot.VARBINARY, length=MAX_LENGTH),
    "timestamp": AtomicType(TypeRoot.TIMESTAMP, precision=6),
    "timestamp with local time zone": AtomicType(TypeRoot.TIMESTAMP_LTZ, precision=6),
    "decimal": AtomicType(TypeRoot.DECIMAL, precision=10),
}

_SIZED = re.compile(r"(decimal|char|varchar)\((\d+)(?:,(\d+))?\)")


def to_hive(data_type: DataType) -> str:
    """Hive's text for a type."""
    match data_type:
        case ArrayType(element):
            return f"array<{to_hive(element)}>"
        case MultisetType(element):
            return f"map<{to_hive(element)},int>"
        case MapType(key, value):
            return f"map<{to_hive(key)},{to_hive(value)}>"
        case RowType(fields):
            return f"struct<{','.join(f'{field.name}:{to_hive(field.type)}' for field in fields)}>"
        case AtomicType(TypeRoot.DECIMAL):
            return f"decimal({data_type.precision},{data_type.scale})"
        case AtomicType(TypeRoot.CHAR) if data_type.length <= _LONGEST_CHAR:
            return f"char({data_type.length})"
        case AtomicType(TypeRoot.VARCHAR) if data_type.length <= _LONGEST_VARCHAR:
            return f"varchar({data_type.length})"
        case AtomicType(TypeRoot.CHAR | TypeRoot.VARCHAR):
            return "string"
        case AtomicType(root):
            return _NAMES[root]


def from_hive(text: str) -> DataType:
    """The type of Hive's text.

    Raises:
        UnsupportedFeatureError: it has no counterpart.
    """
    text = text.strip()
    outer, less, inner = text.partition("<")
    if less and text.endswith(">"):
        parts, kind = _split(inner[:-1]), outer.strip().lower()
        if kind == "array" and len(parts) == 1:
            return ArrayType(from_hive(parts[0]))
        if kind == "map" and len(parts) == 2:
            return MapType(from_hive(parts[0]), from_hive(parts[1]))
        if kind == "struct":
            pairs = [part.partition(":") for part in parts]
            return RowType(
                tuple(
                    DataField(id=number, name=name.strip(), type=from_hive(value))
                    for number, (name, _, value) in enumerate(pairs)
                )
            )
    name = text.lower()
    if name in _ATOMS:
        return _ATOMS[name]
    if sized := _SIZED.fullmatch(name.replace(" ", "")):
        size = int(sized[2])
        if sized[1] == "decimal":
            return AtomicType(TypeRoot.DECIMAL, precision=size, scale=int(sized[3] or 0))
        return AtomicType(TypeRoot(sized[1].upper()), length=size)
    raise UnsupportedFeatureError("no Paimon type for this Hive type", type=text)


def _split(text: str) -> list[str]:
    """Parts between the commas that are not inside brackets."""
    parts, depth, start = [], 0, 0
    for position, character in enumerate(text):
        depth += (character in "<(") - (character in ">)")
        if character == "," and not depth:
            parts.append(text[start:position])
            start = position + 1
    return [*parts, text[start:]]


EXTERNAL_TABLE = "EXTERNAL_TABLE"
VIRTUAL_VIEW = "VIRTUAL_VIEW"

LOCATION_PROPERTY = "paimon_location"
"""Parameter that holds a location with `location-in-properties`."""

_INPUT = "org.apache.paimon.hive.mapred.PaimonInputFormat"
_OUTPUT = "org.apache.paimon.hive.mapred.PaimonOutputFormat"
_SERDE = "org.apache.paimon.hive.PaimonSerDe"
_HANDLER = "org.apache.paimon.hive.PaimonStorageHandler"

_VIEW_INPUT = "org.apache.hadoop.mapred.SequenceFileInputFormat"
_VIEW_OUTPUT = "org.apache.hadoop.hive.ql.io.HiveSequenceFileOutputFormat"
_VIEW_SERDE = "org.apache.hadoop.hive.serde2.MetadataTypedColumnsetSerDe"

_DIALECT = "lakeward.dialect."
"""Prefix of parameters that hold a view's query for other engines; Paimon drops those queries."""

_OF_THE_METASTORE = frozenset({"transient_lastDdlTime", "EXTERNAL"})
_LONGEST_COMMENT = 255
_FOR_EVER = 2_147_483_647


def is_paimon(entry: Any) -> bool:
    """Whether an entry is a table of Paimon."""
    sd = entry.sd
    return sd is not None and (sd.inputFormat, sd.outputFormat) == (_INPUT, _OUTPUT)


def new_entry(database: str, name: str, owner: str, now_s: int, *, external: bool) -> Any:
    """An entry of a table without columns; `describe` fills it."""
    parameters = {"table_type": "PAIMON", "storage_handler": _HANDLER}
    if external:
        parameters["EXTERNAL"] = "TRUE"
    return thrift().Table(
        tableName=name,
        dbName=database,
        owner=owner,
        createTime=now_s,
        lastAccessTime=now_s,
        retention=_FOR_EVER,
        sd=_descriptor(_INPUT, _OUTPUT, _SERDE, {}),
        partitionKeys=[],
        parameters=parameters,
        tableType=EXTERNAL_TABLE if external else "MANAGED_TABLE",
    )


def _descriptor(
    input_format: str, output_format: str, serde: str, parameters: Mapping[str, str]
) -> Any:
    api = thrift()
    return api.StorageDescriptor(
        cols=[],
        inputFormat=input_format,
        outputFormat=output_format,
        compressed=False,
        numBuckets=0,
        serdeInfo=api.SerDeInfo(serializationLib=serde, parameters=dict(parameters)),
        bucketCols=[],
        sortCols=[],
        parameters={},
    )


def describe(entry: Any, schema: TableSchema, old: TableSchema | None, *, every: bool) -> None:
    """Write columns, keys and options of a schema into an entry.

    Args:
        entry: of the table.
        schema: of the table.
        old: the schema that the entry was written from, whose former options are removed; None: a
            new entry.
        every: all options; else those with the prefix `hive.`, without it.
    """
    keys = schema.partition_keys if _registers_partitions(schema) else ()
    entry.partitionKeys = [
        _column(field, field.description) for field in schema.partition_fields if keys
    ]
    entry.sd.cols = [
        _column(field, _short_comment(field.description))
        for field in schema.fields
        if field.name not in keys
    ]
    if old is not None:
        for key in set(_properties(old, every=every)) - set(_properties(schema, every=every)):
            entry.parameters.pop(key, None)
    entry.parameters.update(_properties(schema, every=every))


def _registers_partitions(schema: TableSchema) -> bool:
    return TableOptions.from_strings(schema.options).metastore_partitioned_table


def _properties(schema: TableSchema, *, every: bool) -> dict[str, str]:
    if every:
        return table_properties(schema)
    hive = "hive."
    comment = {} if schema.comment is None else {COMMENT: schema.comment}
    return comment | {
        key.removeprefix(hive): value
        for key, value in schema.options.items()
        if key.startswith(hive)
    }


def _column(field: DataField, comment: str | None) -> Any:
    return thrift().FieldSchema(name=field.name, type=to_hive(field.type), comment=comment)


def _short_comment(comment: str | None) -> str | None:
    """A comment that a column of the metastore's database can hold."""
    if comment is None:
        return None
    line = comment.replace("\n", " ").replace("\r", " ")
    return line if len(line) <= _LONGEST_COMMENT else line[: _LONGEST_COMMENT - 3] + "..."


def new_partition(entry: Any, values: Iterable[str], location: str | None, now_s: int) -> Any:
    """An entry of a partition of a table.

    Args:
        entry: of the table.
        values: of the partition keys.
        location: directory; None: kept in a property, see `LOCATION_PROPERTY`.
        now_s: time.
    """
    sd = thrift().StorageDescriptor(**{name: getattr(entry.sd, name) for name in _SD_FIELDS})
    sd.location = location
    return thrift().Partition(
        values=list(values),
        dbName=entry.dbName,
        tableName=entry.tableName,
        createTime=now_s,
        lastAccessTime=now_s,
        sd=sd,
        parameters={},
    )


_SD_FIELDS = (
    "cols",
    "inputFormat",
    "outputFormat",
    "compressed",
    "numBuckets",
    "serdeInfo",
    "bucketCols",
    "sortCols",
    "parameters",
)


def new_view(database: str, name: str, view: View, owner: str, now_s: int) -> Any:
    """An entry of a view."""
    parameters = dict(view.options)
    if view.comment is not None:
        parameters[COMMENT] = view.comment
    parameters |= {_DIALECT + key: query for key, query in view.dialects.items()}
    sd = _descriptor(_VIEW_INPUT, _VIEW_OUTPUT, _VIEW_SERDE, {"serialization.format": "1"})
    sd.numBuckets = -1
    sd.cols = [_column(field, _short_comment(field.description)) for field in view.fields]
    return thrift().Table(
        tableName=name,
        dbName=database,
        owner=owner,
        createTime=now_s,
        lastAccessTime=0,
        retention=0,
        sd=sd,
        partitionKeys=[],
        parameters=parameters,
        viewOriginalText=view.query,
        viewExpandedText=view.query,
        tableType=VIRTUAL_VIEW,
    )


def view_of(entry: Any) -> View:
    """The view of an entry."""
    texts = {key: value for key, value in entry.parameters.items() if key not in _OF_THE_METASTORE}
    dialects = {
        key.removeprefix(_DIALECT): texts.pop(key)
        for key in list(texts)
        if key.startswith(_DIALECT)
    }
    fields = tuple(
        DataField(
            id=number, name=column.name, type=from_hive(column.type), description=column.comment
        )
        for number, column in enumerate(entry.sd.cols)
    )
    comment = texts.pop(COMMENT, None)
    return View(fields, entry.viewExpandedText, dialects, comment, texts)
