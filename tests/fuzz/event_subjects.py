# SPDX-License-Identifier: Apache-2.0
"""What is made odd: every format with real connectors' rows, and tables of their types.

Debezium's seeds are what real connectors wrote. The other formats' are the same rows, written as
their tools document it: of Debezium flattened, Canal, Maxwell, GoldenGate, DMS, and upsert streams.
"""

import base64
import contextlib
import dataclasses
import datetime
import decimal
import functools
import json
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from unittest import mock

from ingest.config.settings import Settings
from ingest.daemon.configuration import load_settings
from ingest.decode import decoders
from ingest.decode.events import SOURCE_TABLE_OPTION
from ingest.decode.registry import AVRO, RegisteredSchema, SchemaId, UnknownSchemaError
from ingest.schema.new_tables import quarantine_schema
from ingest.source.records import RawBatch
from storage.catalog.catalog import FileSystemCatalog
from storage.format.metadata.schema import TableSchema
from storage.format.types.types import VALUE_KIND
from tests.fuzz.event_mutation import Seed
from tests.unit.ingest.avro_events import Writer, optional
from tests.unit.ingest.avro_events import decimal as avro_decimal
from tests.unit.ingest.captured_events import Capture, captures, load
from tests.unit.ingest.captured_sink import CapturedSink
from tests.unit.ingest.debezium_events import dumps
from tests.unit.ingest.local_stream import LocalStream

__all__ = ["DECODED", "SUBJECTS", "Subject", "subject_of"]

QUARANTINE = "lakeward._quarantine"
_ROWS = 12
"""Seeds of one table at most."""


@dataclasses.dataclass(frozen=True)
class Subject:
    """A format with its seeds and tables.

    Attributes:
        name: of the subject.
        settings: of a pipeline over a warehouse that has the tables.
        tables: by name the id of the schema.
        seeds: by topic.
        schemas: of Avro, by id.
    """

    name: str
    settings: Settings
    tables: Mapping[str, int]
    seeds: Mapping[str, Sequence[Seed]]
    schemas: Mapping[int, RegisteredSchema]

    @contextlib.contextmanager
    def registry(self) -> Iterator[None]:
        """The schemas are registered."""
        schemas = self.schemas

        class Registry:
            def __init__(self, _: Any) -> None:
                pass

            def schema(self, number: SchemaId) -> RegisteredSchema:
                known = schemas.get(int(number)) if str(number).isdigit() else None
                if known is None:
                    raise UnknownSchemaError("no such schema", id=str(number))
                return known

        with mock.patch.object(decoders, "SchemaRegistry", Registry):
            yield


# --- seeds

Row = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Change:
    """A row of a real table, typed."""

    database: str
    table: str
    op: str
    row: Row
    key: tuple[str, ...]


@functools.cache
def _capture(database: str, converter: str) -> Capture:
    (path,) = [p for p in captures([converter]) if p.name.startswith(database)]
    return load(path)


@functools.cache
def _sunk(database: str) -> CapturedSink:
    return CapturedSink().take(_capture(database, "json-schema"))


def _changes(databases: Sequence[str]) -> Iterator[Change]:
    for database in databases:
        sink = _sunk(database)
        for table, batches in sink.changes.items():
            key = sink.schemas[table].primary_keys
            rows = [row for batch in batches for row in _plain_rows(batch.rows)]
            for row in rows[:_ROWS]:
                op = "d" if row.pop(VALUE_KIND) == 3 else "cu"[len(str(row)) % 2]
                yield Change(database, table, op, row, key)


def _plain_rows(rows: Any) -> list[Row]:
    columns = {}
    for name in rows.schema.names:
        if name.startswith("_") and name != VALUE_KIND:
            continue
        try:
            columns[name] = rows.column(name).to_pylist()
        except (ValueError, OverflowError):  # moments that Python does not know
            columns[name] = [None] * rows.num_rows
    return [
        dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
    ]


def _json(value: Any, binary: Callable[[bytes], str]) -> Any:
    match value:
        case bytes():
            return binary(value)
        case decimal.Decimal():
            return str(value)
        case datetime.datetime():
            return value.isoformat(" ").replace("+00:00", "")
        case datetime.date() | datetime.time():
            return value.isoformat()
        case float() if value != value or abs(value) == float("inf"):
            return str(value)
        case list():
            return [_json(each, binary) for each in value]
    return value


def _images(change: Change, binary: Callable[[bytes], str]) -> Row:
    return {name: _json(value, binary) for name, value in change.row.items()}


def _of(row: Row, names: Sequence[str]) -> Row:
    return {name: row[name] for name in names}


def _latin1(data: bytes) -> str:
    return data.decode("latin-1")


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


Written = tuple[str, bytes | None, bytes | None]


def _canal(change: Change) -> Written:
    row = {
        n: v if v is None else v if isinstance(v, str) else json.dumps(v)
        for n, v in _images(change, _latin1).items()
    }
    kind = {"c": "INSERT", "u": "UPDATE", "d": "DELETE"}[change.op]
    name = [n for n in row if n not in change.key][:1]
    value = {
        "data": [row] if len(row) % 3 else [row, row],
        "database": change.database,
        "es": 1_700_000_000_000,
        "id": 3,
        "isDdl": False,
        "mysqlType": None,
        "old": None if change.op != "u" else [_of(row, name)] * (1 if len(row) % 3 else 2),
        "pkNames": list(change.key),
        "sql": "",
        "sqlType": None,
        "table": change.table,
        "ts": 1_700_000_000_400,
        "type": kind,
    }
    return "canal", None, dumps(value)


def _canal_typed(change: Change) -> Written:
    topic, key, value = _canal(change)
    assert value is not None
    types = {name: _mysql_type(v) for name, v in change.row.items()}
    return topic, key, value.replace(b'"mysqlType":null', b'"mysqlType":' + dumps(types))


def _mysql_type(value: Any) -> str:
    match value:
        case bool() | int():
            return "bigint(20)"
        case float():
            return "double"
        case decimal.Decimal():
            return "decimal(38,10)"
        case bytes():
            return "varbinary(100)"
        case datetime.datetime():
            return "datetime(6)"
        case datetime.date():
            return "date"
    return "text"


def _maxwell(change: Change) -> Written:
    row = _images(change, _base64)
    kind = {"c": "insert", "u": "update", "d": "delete"}[change.op]
    value = {"database": change.database, "table": change.table, "type": kind, "ts": 1_700_000_000}
    value |= {"xid": 5, "commit": True, "data": row}
    if change.op == "u":
        value["old"] = _of(row, [n for n in row if n not in change.key][:1])
    key = {"database": change.database, "table": change.table}
    return "maxwell", dumps(key | {f"pk.{n}": row[n] for n in change.key}), dumps(value)


def _ogg(change: Change) -> Written:
    row, op = _images(change, _base64), {"c": "I", "u": "U", "d": "D"}[change.op]
    value = {"table": f"{change.database}.{change.table}", "op_type": op}
    value |= {
        "op_ts": "2020-02-29 10:11:12.123456",
        "current_ts": "2020-02-29T10:11:13.000000",
        "pos": "7",
    }
    if len(row) % 2:
        value["primary_keys"] = list(change.key)
    if op != "I":
        value["before"] = row
    if op != "D":
        value["after"] = row
    return "ogg", None, dumps(value)


def _dms(change: Change) -> Written:
    row = _images(change, bytes.hex)
    operation = {"c": "insert", "u": "update", "d": "delete"}[change.op]
    metadata = {
        "timestamp": "2020-02-29T10:11:12.123456Z",
        "record-type": "data",
        "operation": operation,
    }
    metadata |= {
        "partition-key-type": "schema-table",
        "schema-name": change.database,
        "table-name": change.table,
    }
    value = {"data": {n: v for n, v in row.items() if v is not None}, "metadata": metadata}
    if change.op == "u" and len(row) % 2:
        value["before-image"] = _of(row, change.key)
    return "dms", None, dumps(value)


def _flat(change: Change) -> Written:
    row = _images(change, _base64)
    value = {
        **row,
        "__op": change.op,
        "__table": change.table,
        "__db": change.database,
        "__source_ts_ms": 5,
    }
    if change.op == "d":
        value["__deleted"] = "true"
    return f"flat.{change.database}.{change.table}", dumps(_of(row, change.key)), dumps(value)


def _upsert(change: Change) -> Written:
    row = _images(change, _base64)
    topic = f"{change.database}.{change.table}"
    key = dumps(_of(row, change.key))
    return topic, key, None if change.op == "d" else dumps(row)


def _upsert_block(change: Change) -> Written:
    topic, key, value = _upsert(change)
    kinds = {str: "string", bool: "boolean", int: "int64", float: "double"}
    fields = [
        {"type": kinds.get(type(v), "string"), "optional": True, "field": n}
        for n, v in _images(change, _base64).items()
    ]
    block = dumps({"type": "struct", "fields": fields, "optional": False, "name": "Value"})
    return topic, key, value and b'{"schema":' + block + b',"payload":' + value + b"}"


# --- subjects

Maker = Callable[[str, pathlib.Path], Subject]


def _settings(folder: pathlib.Path, text: str) -> Settings:
    path = folder / "fuzz.yaml"
    text = text.replace("/nowhere", str(folder))
    path.write_text(text.replace("WAREHOUSE", str(folder / "lake")))
    return load_settings(path)


_TEXT = """
source: {type: files, path: /nowhere, format: FORMATMORE}
sink: {warehouse: WAREHOUSE}
pipeline: {name: fuzz}
tables: [{match: '*', RULE}]
"""


def _text(format_: str, more: str = "", rule: str = "toast: keep") -> str:
    text = _TEXT.replace("FORMAT", format_).replace("MORE", more).replace("RULE", rule)
    if "avro" not in format_:
        return text
    kafka = "type: kafka, bootstrap.servers: 'none.invalid:9092', topics.pattern: '.*'"
    return text.replace("type: files, path: /nowhere", kafka)


def _made(settings: Settings, schemas: Mapping[str, TableSchema]) -> dict[str, int]:
    catalog = FileSystemCatalog(settings.sink.warehouse)
    schemas = {**schemas, QUARANTINE: quarantine_schema(0)}
    for name, schema in schemas.items():
        database = name.split(".")[0]
        catalog.create_database(database, ignore_if_exists=True)
        catalog.create_table(name, schema)
    return dict.fromkeys(schemas, 0)


def _typed(database: str, owner: str | None = None) -> dict[str, TableSchema]:
    """Tables of a real database, all of whose changes reach the writer."""
    found = {}
    for name, schema in _sunk(database).schemas.items():
        options = {n: v for n, v in schema.options.items() if n != SOURCE_TABLE_OPTION}
        if owner is not None:
            options[SOURCE_TABLE_OPTION] = f"{owner}{name}"
        options["changelog-producer"] = "input"
        found[name] = dataclasses.replace(schema, id=0, options=options)
    return found


def _by_topic(seeds: Sequence[Seed]) -> dict[str, list[Seed]]:
    found: dict[str, list[Seed]] = {}
    for seed in seeds:
        found.setdefault(seed.topic, []).append(seed)
    return found


def _debezium(database: str, converter: str, more: str = "", rule: str = "toast: keep") -> Maker:
    def make(name: str, folder: pathlib.Path) -> Subject:
        avro = converter == "avro"
        more_ = f"{more}, schema.registry.url: 'http://none.invalid'" if avro else more
        settings = _settings(
            folder, _text("debezium-avro" if avro else "debezium-json", more_, rule)
        )
        capture = _capture(database, converter)
        owner = "shop." if database == "mariadb" else "shop.public."
        schemas = {f"shop.{table}": schema for table, schema in _typed(database, owner).items()}
        seeds = [
            Seed(m.topic, m.key, m.value) if avro else Seed.of(m.topic, m.key, m.value)
            for m in capture.messages
        ]
        known = {n: RegisteredSchema(AVRO, s["schema"]) for n, s in capture.schemas.items()}
        return Subject(name, settings, _made(settings, schemas), _by_topic(seeds), known)

    return make


def _ruled(database: str, source: str, rule: str) -> Maker:
    """A pipeline that makes its tables itself."""

    def make(name: str, folder: pathlib.Path) -> Subject:
        text = _text("debezium-json", source, rule).replace("name: fuzz", "name: fuzz")
        stream = LocalStream(folder, text)
        capture = _capture(database, "json-schema")
        with contextlib.suppress(StopIteration):
            stream.run(0, {(raw.topic, raw.partition): [raw] for raw in capture.batches()})
        seeds = [Seed.of(m.topic, m.key, m.value) for m in capture.messages]
        tables = stream.book.schema_ids()
        return Subject(name, stream.settings, tables, _by_topic(seeds), {})

    return make


def _dialect(
    format_: str,
    write: Callable[[Change], Written],
    more: str = "",
    rule: str = "toast: keep",
    databases: Sequence[str] = ("mariadb", "postgres"),
) -> Maker:
    def make(name: str, folder: pathlib.Path) -> Subject:
        settings = _settings(folder, _text(format_, more, rule))
        schemas = {f"{db}.{t}": s for db in databases for t, s in _typed(db).items()}
        seeds = [Seed.of(*write(change)) for change in _changes(databases)]
        return Subject(name, settings, _made(settings, schemas), _by_topic(seeds), {})

    return make


_AVRO_ROW: dict[str, Any] = {
    "type": "record",
    "name": "Row",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "s", "type": optional("string")},
        {"name": "b", "type": optional("bytes")},
        {"name": "d", "type": optional("double")},
        {"name": "t", "type": optional("boolean")},
        {"name": "n", "type": optional(avro_decimal(2))},
        {"name": "l", "type": optional({"type": "array", "items": ["null", "int"]})},
        {"name": "day", "type": optional({"type": "int", "logicalType": "date"})},
        {"name": "at", "type": optional({"type": "long", "logicalType": "timestamp-micros"})},
    ],
}


def _upsert_avro(name: str, folder: pathlib.Path) -> Subject:
    more = ", schema.registry.url: 'http://none.invalid'"
    stream = LocalStreamless(folder, _text("upsert-avro", more))
    row = Writer(_AVRO_ROW, 1)
    key = Writer({"type": "record", "name": "Key", "fields": _AVRO_ROW["fields"][:1]}, 2)
    seeds = []
    for number in range(40):
        value = {
            "id": number,
            "s": None if number % 7 == 0 else "é" * number,
            "b": bytes(range(number)),
            "d": number / 3,
            "t": number % 2 == 0,
            "n": number.to_bytes(2, "big"),
            "l": [None, number],
            "day": number * 1_000,
            "at": number * 10**12,
        }
        datum = None if number % 9 == 0 else row(value)
        seeds.append(Seed("shop.rows", key({"id": number}), datum))
    schemas = {
        1: RegisteredSchema(AVRO, json.dumps(_AVRO_ROW)),
        2: RegisteredSchema(AVRO, json.dumps(key.schema)),
    }
    return stream.subject(name, seeds, schemas)


class LocalStreamless:
    """A pipeline of Avro whose tables its own first batch makes."""

    def __init__(self, folder: pathlib.Path, text: str) -> None:
        self.folder, self.text = folder, text

    def subject(
        self, name: str, seeds: Sequence[Seed], schemas: Mapping[int, RegisteredSchema]
    ) -> Subject:
        empty = Subject(name, None, {}, {}, schemas)  # type: ignore[arg-type]
        with empty.registry():
            stream = LocalStream(self.folder, self.text)
            raw = RawBatch(
                seeds[0].topic,
                0,
                list(range(len(seeds))),
                [seed.key for seed in seeds],
                [seed.value for seed in seeds],
            )
            stream.run(0, {(raw.topic, 0): [raw]})
        return Subject(name, stream.settings, stream.book.schema_ids(), _by_topic(seeds), schemas)


_SOURCE_ORDER = ", ordering: source"
_RULE = (
    "toast: keep, table.properties: {changelog-producer: input}, "
    'computed: ["tag = concat(\'n\', cast(id as string))"], filter: "id <> 77"'
)

SUBJECTS: Mapping[str, Maker] = {
    "debezium-json mariadb": _debezium("mariadb", "json"),
    "debezium-json postgres": _debezium("postgres", "json"),
    "debezium-json block mariadb": _debezium("mariadb", "json-schema"),
    "debezium-json block postgres": _debezium("postgres", "json-schema"),
    "debezium-json fail": _debezium("postgres", "json", rule="toast: fail"),
    "debezium-json string modes": _debezium(
        "mariadb",
        "json",
        ", debezium: {decimal.handling.mode: string, time.precision.mode: isostring, "
        "binary.handling.mode: hex}",
    ),
    "debezium-json ddl": _debezium(
        "mariadb", "json", ", debezium: {schema.change.topic: maria-json}"
    ),
    "debezium-json ordered": _ruled(
        "postgres", _SOURCE_ORDER, "toast: keep, table.properties: {changelog-producer: input}"
    ),
    "debezium-json computed": _ruled("mariadb", "", _RULE),
    "debezium-avro mariadb": _debezium("mariadb", "avro"),
    "debezium-avro postgres": _debezium("postgres", "avro"),
    "debezium-flat": _dialect("debezium-flat", _flat),
    "json": _dialect("json", _upsert, rule="primary.key: [id]"),
    "upsert-json": _dialect("upsert-json", _upsert),
    "upsert-json block": _dialect("upsert-json", _upsert_block),
    "canal-json": _dialect("canal-json", _canal),
    "canal-json types": _dialect("canal-json", _canal_typed),
    "maxwell-json": _dialect("maxwell-json", _maxwell),
    "ogg-json": _dialect("ogg-json", _ogg),
    "aws-dms-json": _dialect("aws-dms-json", _dms),
    "upsert-avro": _upsert_avro,
}
DECODED = tuple(
    name
    for name in SUBJECTS
    if not name.endswith(("avro", "ddl", "ordered", "computed")) and "avro" not in name
)
"""Formats in JSON, without what comes after their decoders."""


def subject_of(name: str, folder: pathlib.Path) -> Subject:
    """Make a subject in an empty folder."""
    folder.mkdir(parents=True)
    return SUBJECTS[name](name, folder)
