# SPDX-License-Identifier: Apache-2.0
"""Types of the source's columns in sampled records, as the connector names them.

For reports, independent of the decoder: of each source table one record of every distinct schema
block is read. Formats without schema blocks carry no types, except Canal's `mysqlType`; then the
JSON type of the values is reported.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from ingest.decode.schema_change_events import JsonValue
from ingest.decode.types.unavailable import Placeholder
from ingest.source.records import RawBatch
from ingest.tools.plan.sample import TopicSample

_MOST_RECORDS = 2_000
"""Records of one topic that are examined."""

_KINDS: Mapping[type, str] = {
    bool: "JSON true or false",
    int: "JSON number",
    float: "JSON number",
    str: "JSON text",
    list: "JSON array",
    dict: "JSON object",
}
_SHORT = {
    "org.apache.kafka.connect.data.": "connect.",
    "io.debezium.time.": "",
    "io.debezium.data.": "",
    "io.debezium.data.geometry.": "",
}


@dataclasses.dataclass(slots=True)
class Observed:
    """Statistics of the events of one source table.

    Attributes:
        columns: type of each column as the source names it, or the JSON type of its values.
        typed: whether events carry types.
        connector: `postgresql`, `mysql`, …; empty when events do not say.
        records: row events examined.
        keyless: those without a key.
        changes: updates and deletes.
        no_before: updates and deletes without a `before`.
        unavailable: those with a value that was not sent because it did not change.
    """

    columns: dict[str, str] = dataclasses.field(default_factory=dict)
    typed: bool = False
    connector: str = ""
    records: int = 0
    keyless: int = 0
    changes: int = 0
    no_before: int = 0
    unavailable: int = 0


def observe(
    topics: Sequence[TopicSample], value: JsonValue, placeholder: str
) -> dict[tuple[str, str, str], Observed]:
    """Read the columns of the sample.

    Args:
        topics: the sample.
        value: reads a record's value as a JSON message.
        placeholder: stands for a value that was not sent.

    Returns:
        By (database, schema, table); empty texts where events do not carry them, and by the topic's
        name as table where they carry none.
    """
    observed: dict[tuple[str, str, str], Observed] = {}
    forms = Placeholder(placeholder).needles
    for topic in topics:
        for raw, at in _sampled_records(topic):
            message = _parsed(value(raw, at))
            if message is not None:
                _observe(observed, raw, at, message, forms)
    return observed


def _sampled_records(topic: TopicSample) -> Iterator[tuple[RawBatch, int]]:
    step = max(1, topic.sampled // _MOST_RECORDS)
    for raw in topic.batches:
        for at in range(0, len(raw), step):
            yield raw, at


def _parsed(data: bytes | None) -> dict[str, Any] | None:
    if data is None:
        return None
    try:
        message = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
    return message if isinstance(message, dict) else None


def _observe(
    observations: dict[tuple[str, str, str], Observed],
    raw: RawBatch,
    at: int,
    message: Mapping[str, Any],
    forms: tuple[bytes, ...],
) -> None:
    block = message.get("schema") if "payload" in message else None
    event = message.get("payload", message)
    if not isinstance(event, dict):
        return
    origin = event.get("source")
    origin = origin if isinstance(origin, dict) else {}
    place = (
        str(origin.get("db") or event.get("database") or ""),
        str(origin.get("schema") or ""),
        str(origin.get("table") or event.get("table") or raw.topic),
    )
    operation = event.get("op")
    enveloped = isinstance(operation, str) and bool(origin)
    if enveloped and operation not in ("c", "r", "u", "d"):
        return
    stats = observations.setdefault(place, Observed())
    stats.records += 1
    stats.keyless += raw.keys[at] is None
    stats.connector = str(origin.get("connector") or stats.connector)
    if enveloped and operation in ("u", "d"):
        stats.changes += 1
        stats.no_before += event.get("before") is None
    data = raw.values[at] or b""
    stats.unavailable += any(form in data for form in forms)
    if isinstance(block, dict):
        stats.typed = True
        stats.columns.update(_block_columns(block, enveloped=enveloped))
    elif isinstance(event.get("mysqlType"), dict):
        stats.typed = True
        stats.columns.update({str(k): str(v) for k, v in event["mysqlType"].items()})
    elif enveloped and isinstance(event.get("after"), dict):
        for name, value in event["after"].items():
            if value is not None:
                stats.columns.setdefault(name, _KINDS.get(type(value), "JSON"))


def _block_columns(block: Mapping[str, Any], *, enveloped: bool) -> Iterator[tuple[str, str]]:
    fields = block.get("fields")
    if enveloped:
        rows = [f for f in _maps(fields) if f.get("field") == "after"]
        fields = rows[0].get("fields") if rows else None
    for field in _maps(fields):
        if isinstance(field.get("field"), str):
            yield field["field"], _short_name(field)


def _maps(fields: object) -> list[Mapping[str, Any]]:
    return [f for f in fields if isinstance(f, dict)] if isinstance(fields, list) else []


def _short_name(field: Mapping[str, Any]) -> str:
    """A short name: the database's own where the connector sends it, else the semantic one."""
    parameters = field.get("parameters")
    parameters = parameters if isinstance(parameters, dict) else {}
    native_type = parameters.get("__debezium.source.column.type")
    if native_type:
        length = parameters.get("__debezium.source.column.length")
        scale = parameters.get("__debezium.source.column.scale")
        sizes = ", ".join(str(size) for size in (length, scale) if size is not None)
        return f"{native_type}({sizes})" if sizes else str(native_type)
    literal = str(field.get("type", ""))
    if literal == "array" and isinstance(field.get("items"), dict):
        return f"array<{_short_name(field['items'])}>"
    name = field.get("name")
    if not name:
        return literal
    short = str(name)
    for prefix in sorted(_SHORT, key=len, reverse=True):
        if short.startswith(prefix):
            short = _SHORT[prefix] + short[len(prefix) :]
            break
    precision, scale = parameters.get("connect.decimal.precision"), parameters.get("scale")
    if scale is not None:
        return f"{short}({precision}, {scale})" if precision else f"{short}(scale {scale})"
    return f"{short} ({literal})"
