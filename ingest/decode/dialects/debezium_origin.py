# SPDX-License-Identifier: Apache-2.0
"""Where Debezium's events have what is known of a change besides its row.

In the envelope and its `source` block, or, flattened by `ExtractNewRecordState`, in members with a
prefix that `add.fields` names: `__source_lsn` for `source.lsn`, `__lsn` for `lsn`; there `op` and
`ts_ms` are the envelope's.

Source: CDC.md §1.1, §1.3, §1.8.
"""

from collections.abc import Collection, Mapping, Sequence

import pyarrow as pa

from ingest.decode.json.member_columns import (
    LOWER,
    MOMENT,
    NUMBER,
    TEXT,
    TOKEN,
    Member,
    MemberReader,
    Reading,
)
from ingest.decode.json.single_event import EventRefusedError
from ingest.decode.topic_state import TopicState
from ingest.source.records import RawBatch

__all__ = ["ENVELOPE_MEMBERS", "SOURCE_MEMBERS", "EnvelopeOrigins", "flat_members"]

SOURCE_MEMBERS: Mapping[str, tuple[str, Reading]] = {
    "source_ts_ms": ("ts_ms", NUMBER),
    "op_ts": ("ts_ms", MOMENT),
    "connector": ("connector", TEXT),
    "server": ("name", TEXT),
    "database": ("db", TEXT),
    "schema": ("schema", TEXT),
    "table": ("table", TEXT),
    "snapshot": ("snapshot", TOKEN),
    "lsn": ("lsn", NUMBER),
    "txid": ("txId", TOKEN),
    "gtid": ("gtid", TEXT),
    "file": ("file", TEXT),
    "pos": ("pos", NUMBER),
    "row": ("row", NUMBER),
    "server_id": ("server_id", NUMBER),
    "thread": ("thread", NUMBER),
    "scn": ("scn", TOKEN),
    "commit_scn": ("commit_scn", TOKEN),
    "ssn": ("ssn", NUMBER),
    "change_lsn": ("change_lsn", TEXT),
    "commit_lsn": ("commit_lsn", TEXT),
    "event_serial_no": ("event_serial_no", NUMBER),
    "sequence": ("sequence", TEXT),
}
"""By name of metadata: the member of `source`, and how it is read."""

_CLOSING_BRACE = ord("}")

_ORDER = "total_order"

_OUTER: Mapping[str, tuple[str, Reading]] = {"op": ("op", LOWER), "ts_ms": ("ts_ms", NUMBER)}

ENVELOPE_MEMBERS: Mapping[str, tuple[Member, ...]] = {
    **{name: (Member((member,), how),) for name, (member, how) in _OUTER.items()},
    **{name: (Member(("source", member), how),) for name, (member, how) in SOURCE_MEMBERS.items()},
    _ORDER: (Member(("transaction", _ORDER), NUMBER),),
}
"""By name of metadata where an event envelope has it."""


def flat_members(prefix: str) -> Mapping[str, tuple[Member, ...]]:
    """By name of metadata where a flattened event may have it."""
    if not prefix:
        return {}
    found: dict[str, tuple[Member, ...]]
    found = {name: (Member((prefix + member,), how),) for name, (member, how) in _OUTER.items()}
    for name, (member, how) in SOURCE_MEMBERS.items():
        places: tuple[Member, ...] = (Member((f"{prefix}source_{member}",), how),)
        if member != "ts_ms":  # which is the envelope's when nothing else is said
            places += (Member((prefix + member,), how),)
        found[name] = places
    found[_ORDER] = (Member((f"{prefix}transaction_{_ORDER}",), NUMBER),)
    return found


class EnvelopeOrigins:
    """Reads the metadata of event envelopes in JSON.

    Args:
        topics: what the decoder remembers of topics.
    """

    def __init__(self, topics: Mapping[str, TopicState]) -> None:
        self._topics = topics
        self._readers: dict[tuple[str, ...], MemberReader] = {}

    def __call__(
        self, raw: RawBatch, places: Sequence[int], names: Collection[str]
    ) -> Mapping[str, pa.Array]:
        """See `origin.OriginReader`."""
        wanted = tuple(names)
        reader = self._readers.get(wanted)
        if reader is None:
            reader = MemberReader(ENVELOPE_MEMBERS, wanted, required="op")
            self._readers[wanted] = reader
        state = self._topics.get(raw.topic) or TopicState()
        messages = _cut(raw.values, state.prefix, places)
        return reader.columns(messages, lambda index: _payload(state, raw.values[places[index]]))


def _cut(
    values: Sequence[bytes | None], prefix: bytes, places: Sequence[int]
) -> list[bytes | None]:
    """Payloads of messages with a prefix (empty = they are bare); None where it is another one."""
    if not prefix:
        return [values[at] for at in places]
    size = len(prefix)
    return [
        value[size:-1]
        if (value := values[at]) is not None
        and value.startswith(prefix)
        and value[-1] == _CLOSING_BRACE
        else None
        for at in places
    ]


def _payload(state: TopicState, value: bytes | None) -> bytes | None:
    try:
        return None if value is None else state.split(value)[1]
    except EventRefusedError:
        return None
