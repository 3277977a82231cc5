# SPDX-License-Identifier: Apache-2.0
"""What a record is that the format in use does not know: for messages, never for decoding.

Each form is recognised by members that its tool always writes, so a row is taken for a message
only if it has all of them.
"""

from collections.abc import Mapping

from ingest.decode.types.token_values import MEMBERS, PARSE_ERRORS

_ENVELOPE_MEMBERS = frozenset(
    ("before", "after", "source", "op", "ts_ms", "ts_us", "ts_ns", "transaction")
)
_MAXWELL_TYPES = frozenset(
    ("insert", "update", "delete", "bootstrap-insert", "bootstrap-start", "bootstrap-complete")
)
_RECORD_MEMBERS = frozenset(
    ("key", "value", "headers", "timestamp", "topic", "partition", "offset")
)
_FRAME_BYTES = 5
_TEXT_CONTROLS = b"\t\n\r"
_INSPECTED_BYTES = 4_096

MONGODB = "an event of Debezium's MongoDB connector, which is not supported"
_FLAT = ("__op", "__deleted", "__table", "__source_ts_ms", "__lsn")


def format_hint(value: bytes | None, format_name: str = "") -> str:
    """What a record looks like and what to do about it, to be put after an error's text.

    Args:
        value: of the record.
        format_name: the format in use.

    Returns:
        Text that begins with `; `; empty when nothing is known of it, or the format reads it.
    """
    what, format_ = looks_like(value)
    if not what or (format_ and format_ == format_name):
        return ""
    return f"; it looks like {what}" + (f": set source.format: {format_}" if format_ else "")


def text_format_hint(value: bytes | None) -> str:
    """As `format_hint`, of a record that should be binary and may be JSON."""
    return format_hint(value) or "; it is JSON" if value is not None and value[:1] == b"{" else ""


def looks_like(value: bytes | None) -> tuple[str, str]:
    """(what a record looks like, the format that reads it); empty = not known, there is none."""
    if not value:
        return "", ""
    if value[:1] == b"\0" and len(value) > _FRAME_BYTES:
        return _framed(value)
    members = _members(value)
    if members is None:
        return (
            "binary data (Protobuf, or Avro without a registry's id)" if _binary(value) else ""
        ), ""
    if members.keys() >= {"schema", "payload"} and members["payload"][:1] == b"{":
        block = _members(members["schema"]) or {}
        if "dataColumn" in block:
            return "Alibaba Cloud's JSON of Canal, which is not supported", ""
        members = _members(members["payload"]) or {}
    return _object(members)


def _is_envelope(members: Mapping[str, bytes]) -> bool:
    """Whether a JSON object has the members of a Debezium envelope, and no others."""
    if not members.keys() >= {"op", "source"} or not members.keys() <= _ENVELOPE_MEMBERS:
        return False
    if not members.keys() & {"before", "after"}:
        return False
    return "connector" in (_members(members["source"]) or {})


def _framed(value: bytes) -> tuple[str, str]:
    if value[_FRAME_BYTES : _FRAME_BYTES + 1] == b"{":
        return "JSON with a schema registry's id before it, which is not supported", ""
    return (
        "bytes of a schema registry's serializer: Protobuf is not supported, Avro is read by "
        "source.format debezium-avro or upsert-avro",
        "",
    )


def _binary(value: bytes) -> bool:
    start = value[:_INSPECTED_BYTES].lstrip()
    if start[:1] in (b"{", b"[", b'"'):
        return False  # text, though it may have characters that JSON does not allow
    return any(byte < 0x20 and byte not in _TEXT_CONTROLS for byte in start)


def _object(members: Mapping[str, bytes]) -> tuple[str, str]:
    for what, format_, fits in _FORMS:
        if fits(members):
            return what, format_
    return "", ""


def _members(text: bytes) -> Mapping[str, bytes] | None:
    try:
        return {name: bytes(raw) for name, raw in MEMBERS.decode(text).items()}
    except PARSE_ERRORS:
        return None


def _text(members: Mapping[str, bytes], name: str) -> str:
    token = members.get(name, b"")
    return token[1:-1].decode("utf-8", "replace") if token[:1] == b'"' else ""


def _is_mongodb(members: Mapping[str, bytes]) -> bool:
    if not members.keys() >= {"op", "source"}:
        return False
    source = _members(members["source"]) or {}
    return _text(source, "connector") == "mongodb" or "collection" in source


def _is_schema_change(members: Mapping[str, bytes]) -> bool:
    return members.keys() >= {"source", "databaseName"} and bool(
        members.keys() & {"ddl", "tableChanges"}
    )


def _is_ogg(members: Mapping[str, bytes]) -> bool:
    if "table" not in members or _text(members, "op_type") not in ("I", "U", "D"):
        return False
    return any(members.get(name, b"")[:1] == b"{" for name in ("before", "after"))


def _is_canal(members: Mapping[str, bytes]) -> bool:
    if "type" not in members or members.get("data", b"")[:1] not in (b"[", b"n"):
        return False
    described = any(members.get(name, b"")[:1] == b"{" for name in ("mysqlType", "sqlType"))
    return described or members.get("isDdl") in (b"true", b"false")


def _is_maxwell(members: Mapping[str, bytes]) -> bool:
    if not members.keys() >= {"type", "database", "table", "data", "ts"}:
        return False
    return members["data"][:1] == b"{" and _text(members, "type") in _MAXWELL_TYPES


def _is_dms(members: Mapping[str, bytes]) -> bool:
    metadata = _members(members.get("metadata", b"")) or {}
    return metadata.keys() >= {"operation", "record-type"}


_FORMS = (
    ("a CloudEvents message, which is not supported", "", lambda m: "specversion" in m),
    (MONGODB, "", _is_mongodb),
    ("an envelope of Debezium", "debezium-json", _is_envelope),
    ("a schema change of Debezium", "debezium-json", _is_schema_change),
    ("a message of Canal", "canal-json", _is_canal),
    ("an operation of GoldenGate", "ogg-json", _is_ogg),
    ("a record of AWS DMS", "aws-dms-json", _is_dms),
    ("a message of Maxwell", "maxwell-json", _is_maxwell),
    (
        "TiCDC's simple protocol, which is not supported (its canal-json is)",
        "",
        lambda m: (
            m.keys() >= {"type", "commitTs"} and bool(m.keys() & {"tableID", "schemaVersion"})
        ),
    ),
    (
        "a message of Qlik Replicate, which is not supported",
        "",
        lambda m: _text(m, "magic") in ("atMSG", "AT"),
    ),
    ("a flattened event of Debezium", "debezium-flat", lambda m: any(n in m for n in _FLAT)),
    (
        "an archived record (source.lines: archived reads it)",
        "",
        lambda m: "value" in m and m.keys() <= _RECORD_MEMBERS and len(m) > 1,
    ),
)
"""(what it is, the format that reads it, how it is recognised), the surest first."""
