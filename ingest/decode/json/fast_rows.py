# SPDX-License-Identifier: Apache-2.0
"""The hot loop: payloads of one shape to envelopes and row images, without a Python step per event.

Data plane. The structs live only as long as one chunk (`debezium_json`).
"""

import operator
from collections.abc import Callable, Collection, Sequence
from typing import Any

import msgspec

from ingest.decode.decode_plan import RowPlan
from ingest.decode.types.token_values import NULL

__all__ = [
    "cut_payloads",
    "decode_all",
    "is_value",
    "op_of",
    "recognises",
    "row_images",
    "stamps_of",
]

_PARSE_ERRORS = (
    msgspec.MsgspecError,
    UnicodeDecodeError,
    RecursionError,
    TypeError,  # None stands for a message that does not start with the shape's prefix
)
_CLOSING_BRACE = ord("}")
_OP_OF = operator.attrgetter("op")
_AFTER_OF = operator.attrgetter("after")
_BEFORE_OF = operator.attrgetter("before")
_STAMP_OF = operator.attrgetter("source.ts_ms")


def cut_payloads(
    values: Sequence[bytes | None], prefix: bytes, positions: Sequence[int]
) -> list[bytes | None]:
    """Payloads of messages with a prefix; None for those that do not have it.

    Args:
        values: of the raw batch.
        prefix: schema block up to the payload; empty = the messages are bare.
        positions: of the messages wanted.
    """
    if not prefix:
        return [values[at] for at in positions]
    size = len(prefix)
    return [
        value[size:-1]
        if (value := values[at]) is not None
        and value.startswith(prefix)
        and value[-1] == _CLOSING_BRACE
        else None
        for at in positions
    ]


class _Op(msgspec.Struct):
    op: str


_OP = msgspec.json.Decoder(_Op)


def op_of(payload: bytes) -> str:
    """`op` of a row event in lower case."""
    return _OP.decode(payload).op.lower()


def recognises(plan: RowPlan | None, payload: bytes, known: Collection[str] = ()) -> bool:
    """Whether a plan that gives out no rows has all of an event's columns.

    Args:
        plan: made from what was learned in earlier events.
        payload: the event.
        known: columns that the table has; the event must have a value for some other one.
    """
    if plan is None:
        return False
    try:
        event = plan.decode_before(payload)
    except _PARSE_ERRORS:
        return False
    row = event.before if event.op == "d" else event.after
    if row is not None and not plan.holds_numbers(row):
        return False
    if not known:
        return True
    new = [
        get
        for column, get in zip(plan.columns, plan.getters, strict=True)
        if column.member not in known
    ]
    return row is not None and any(is_value(get(row)) for get in new)


def is_value(value: object) -> bool:
    """Whether a decoded member, raw or not, is more than null."""
    return value is not None and not (isinstance(value, msgspec.Raw) and bytes(value) == NULL)


def decode_all(
    decode: Callable[[bytes], Any], payloads: Sequence[bytes | None]
) -> tuple[list[Any], list[int]]:
    """Envelopes, None where decoding failed; and the indices of those.

    The map keeps its place when one payload fails, so the good ones never leave the C loop.
    """
    events: list[Any] = []
    failed: list[int] = []
    decoding = map(decode, payloads)  # type: ignore[arg-type]
    while True:
        try:
            events.extend(decoding)
        except _PARSE_ERRORS:
            failed.append(len(events))
            events.append(None)
        else:
            return events, failed


def row_images(
    plan: RowPlan, events: Sequence[Any], payloads: Sequence[bytes | None]
) -> tuple[str, list[Any], list[int]]:
    """Ops, row images (`before` of deletes), and indices that need the reference path."""
    ops = "".join(map(_OP_OF, events))
    rows = list(map(_AFTER_OF, events))
    if "d" in ops:
        for index in [index for index, op in enumerate(ops) if op == "d"]:
            try:
                rows[index] = plan.decode_before(payloads[index]).before  # type: ignore[arg-type]
            except _PARSE_ERRORS:
                rows[index] = None
    odd = [index for index, row in enumerate(rows) if row is None]
    for index in odd:
        rows[index] = plan.empty_row
    odd += _key_changes(plan, events, ops, rows)
    return ops, rows, odd


def stamps_of(events: Sequence[Any]) -> list[int | None]:
    """`source.ts_ms` of envelopes."""
    return list(map(_STAMP_OF, events))


def _key_changes(plan: RowPlan, events: Sequence[Any], ops: str, rows: Sequence[Any]) -> list[int]:
    """Updates of the key, or without the old key where the target needs it."""
    key_of, single = plan.key_of, len(plan.key) == 1
    required = bool(plan.target.needs_before)
    found: list[int] = []
    if "u" not in ops:
        return found
    for index, before in enumerate(map(_BEFORE_OF, events)):
        if (before is None and not required) or ops[index] != "u":
            continue
        old = None if before is None else key_of(before)
        known = old is not None if single or old is None else None not in old
        if (old != key_of(rows[index]) and known) or (required and not known):
            found.append(index)
    return found
