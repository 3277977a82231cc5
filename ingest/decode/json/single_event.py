# SPDX-License-Identifier: Apache-2.0
"""One row event, decoded alone by the reference path.

Handles what the column-wise path refuses: unusual but exact values, key changes, deletes that carry
only the key, and bad records, whose reason this module determines.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from ingest.decode.columns import PlanColumn, RowPlan, folded
from ingest.decode.events import (
    MEMBERS,
    NULL,
    PARSE_ERRORS,
    EventRefusedError,
    Toast,
    UnavailableValueError,
    UnrepresentableError,
    ValueRefusedError,
    shown_value,
    split_message,
)
from ingest.decode.types.conversions import Placeholder
from ingest.decode.types.reference import decode_value
from storage.format.types.types import RowKind, type_name

Tokens = Mapping[str, bytes]
"""Members of a JSON object with the raw text of their values."""


def blames_columns(error: Exception) -> bool:
    """Whether a record is bad for what its row has in a column, rather than for its form."""
    return isinstance(error, UncoveredError) or getattr(error, "error_class", "") == "type"


class UncoveredError(Exception):
    """The row has values for columns that the table lacks.

    Attributes:
        tokens: of those columns, none of them null.
    """

    def __init__(self, tokens: Tokens) -> None:
        super().__init__(", ".join(tokens))
        self.tokens = tokens


@dataclasses.dataclass(frozen=True, slots=True)
class SingleRow:
    """One change row.

    Attributes:
        kind: row kind.
        values: storage values in schema order.
        source_ts_ms: `source.ts_ms` [epoch ms] or None.
        unavailable: indices of values that the source did not send because they did not change.
        moved: whether the previous row deletes the same row under its old key.
    """

    kind: RowKind
    values: tuple[Any, ...]
    source_ts_ms: int | None
    unavailable: tuple[int, ...] = ()
    moved: bool = False


_NO_OBJECT = (EventRefusedError, msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def members_of(token: bytes, what: str) -> Tokens:
    """Members of a JSON object.

    Raises:
        EventRefusedError: it is no object.
    """
    try:
        members = MEMBERS.decode(token)
    except msgspec.ValidationError:
        raise EventRefusedError("envelope", f"{what} is no object") from None
    except PARSE_ERRORS as error:
        raise EventRefusedError("json", str(error)) from None
    return {name: bytes(raw) for name, raw in members.items()}


def key_tokens(key: bytes | None) -> Tokens:
    """Columns of a Kafka key, in key order; empty when it is no JSON object."""
    if not key:
        return {}
    try:
        return members_of(split_message(key).payload, "the key")
    except _NO_OBJECT:
        return {}


def named_by_key(plan: RowPlan, key: bytes | None) -> Tokens:
    """Columns of a Kafka key, under the members that the plan reads them from.

    The key columns suffice if other members are not valid text.
    """
    tokens = key_tokens(key)
    if key and not tokens:
        try:
            tokens = plan.key_tokens(split_message(key).payload)
        except _NO_OBJECT:
            return {}
    return as_members(plan, tokens)


def as_members(plan: RowPlan, key: Tokens) -> Tokens:
    """Columns of a Kafka key under the members that the plan reads them from.

    Rows may spell a column otherwise than keys do.
    """
    if key.keys() >= {*plan.key_names}:
        return key
    tokens = dict(key)
    for column in (plan.columns[index] for index in plan.key):
        spellings = [name for name in key if _names_column(plan, name, column)]
        if column.member not in key and spellings:
            tokens[column.member] = key[spellings[0]]
    return tokens


def _names_column(plan: RowPlan, name: str, column: PlanColumn) -> bool:
    if plan.target.exact_names:
        return name == column.name
    return folded(name) == folded(column.name)


def row_image(token: bytes, what: str) -> Tokens:
    """Columns of a row image; none of null.

    Raises:
        EventRefusedError: it is no object.
    """
    if token[:1] == b'"':
        raise EventRefusedError("envelope", f"{what} is a string, as of MongoDB: not supported")
    return {} if token == NULL else members_of(token, what)


OldKey = Callable[[], Tokens | None]
"""Returns the key that a new row had before; None: none. May raise EventRefusedError."""


def no_old_key() -> Tokens | None:
    """The old key of a new row: none."""
    return None


def before_tokens(plan: RowPlan, op: str, image: bytes) -> Tokens:
    """Columns of the row before; only the key's if others are not valid text.

    Raises:
        EventRefusedError: it is no row image, or a delete needs more of it than the key.
    """
    try:
        return row_image(image, "before")
    except EventRefusedError as error:
        if (op == "d" and plan.target.needs_values) or error.error_class != "json":
            raise
    try:
        return plan.key_tokens(image)
    except PARSE_ERRORS as error:
        raise EventRefusedError("json", str(error)) from None


def decode_images(
    plan: RowPlan,
    op: str,
    before: Tokens,
    after: Tokens,
    key: bytes | None,
    ts_ms: int | None,
    placeholder: Placeholder,
    old_key: OldKey = no_old_key,
) -> list[SingleRow]:
    """Rows of one change with known images, for any format.

    Args:
        plan: of its shape.
        op: `c r u d`.
        before: the row before; empty = unknown.
        after: the row after; ignored for `d`.
        key: the record's key where its members are the key columns.
        ts_ms: of the change in the source [epoch ms].
        placeholder: of unavailable values.
        old_key: called only where a new row lacks values.

    Returns:
        One row; two for an update that changes the key, and for a new row that takes values from
        its old key's: -D old, then +I new.

    Raises:
        EventRefusedError: it is a bad record.
        UncoveredError: it has columns that the plan does not know.
    """
    if op == "d":
        values = _deleted(plan, before, key, placeholder)
        return [SingleRow(RowKind.DELETE, values, ts_ms)]
    values, missing = _row(plan, after, placeholder)
    _require_key(plan, values)
    keeps = bool(missing) and plan.target.toast is Toast.KEEP
    if op != "u":
        tokens = old_key() if keeps else None
        if tokens is None:
            _require_sent(plan, missing, "the row is new")
            return [SingleRow(RowKind.INSERT, values, ts_ms, missing)]
        _require_old_row(plan, missing)
        tokens = as_members(plan, tokens)
        before = {name: tokens[name] for name in plan.key_names if name in tokens}
        old = _deleted(plan, before, None, placeholder)
        return _key_change_rows(old, values, ts_ms, missing, keeps)
    _require_before(plan, before)
    if not before or not _key_changed(plan, before, values, placeholder):
        return [SingleRow(RowKind.UPDATE_AFTER, values, ts_ms, missing)]
    if keeps:
        _require_old_row(plan, missing)
    old = _deleted(plan, before, None, placeholder)
    return _key_change_rows(old, values, ts_ms, missing, keeps)


def _key_change_rows(
    old: tuple[Any, ...],
    new: tuple[Any, ...],
    ts_ms: int | None,
    missing: tuple[int, ...],
    keeps: bool,
) -> list[SingleRow]:
    return [
        SingleRow(RowKind.DELETE, old, ts_ms),
        SingleRow(RowKind.INSERT, new, ts_ms, missing, moved=keeps),
    ]


def _require_sent(plan: RowPlan, unsent: Sequence[int], reason: str) -> None:
    """Refuse unsent values if there is no older row to take them from."""
    if unsent and plan.target.toast is Toast.KEEP:
        names = ", ".join(plan.columns[index].name for index in unsent)
        raise EventRefusedError(
            "unavailable_value", f"column {names}: {reason}, and the source did not send the value"
        )


def _require_old_row(plan: RowPlan, missing: Sequence[int]) -> None:
    """Refuse unsent values if the task that writes the new row may not have the old one."""
    if not plan.target.finds_old_rows:
        names = ", ".join(plan.columns[index].name for index in missing)
        raise EventRefusedError(
            "unavailable_value",
            f"column {names}: the key changed, the source did not send the value, and the old row "
            "is not surely known where the new one is written (only in tables of one bucket, "
            "without transforms)",
        )


def _require_before(plan: RowPlan, before: Tokens) -> None:
    """Refuse a change without the key of the old row, where that must be known."""
    if plan.target.needs_before:
        lacking = [name for name in plan.key_names if before.get(name, NULL) == NULL]
        if lacking:
            raise EventRefusedError("before_image", plan.target.needs_before)


def _uncovered(plan: RowPlan, tokens: Tokens) -> None:
    extra = {
        name: token
        for name, token in tokens.items()
        if name not in plan.index and token != NULL and name not in plan.target.ignored
    }
    if extra:
        raise UncoveredError(extra)


def _value(column: PlanColumn, tokens: Tokens, placeholder: Placeholder) -> Any:
    try:
        return decode_value(column.codec, tokens.get(column.member, NULL), placeholder)
    except UnavailableValueError as error:
        raise EventRefusedError("unavailable_value", f"column {column.name}: {error}") from None
    except ValueRefusedError as error:
        raise _value_error(column, tokens, error) from None


def _value_error(column: PlanColumn, tokens: Tokens, error: ValueRefusedError) -> EventRefusedError:
    kind = "unrepresentable" if isinstance(error, UnrepresentableError) else "type"
    value = shown_value(tokens.get(column.member, NULL))
    label = f"column {column.name} ({type_name(column.type)})"
    return EventRefusedError(kind, f"{label}: {error}; the value is {value}")


def _row(
    plan: RowPlan, tokens: Tokens, placeholder: Placeholder
) -> tuple[tuple[Any, ...], tuple[int, ...]]:
    """Values, and the indices of those that the source did not send."""
    _uncovered(plan, tokens)
    values: list[Any] = []
    missing: list[int] = []
    for index, column in enumerate(plan.columns):
        try:
            values.append(_value(column, tokens, placeholder))
        except EventRefusedError as error:
            optional = plan.target.toast is not Toast.FAIL and column.type.nullable
            if error.error_class != "unavailable_value" or not optional:
                raise
            values.append(None)
            missing.append(index)
    _require_present(plan, values)
    return tuple(values), tuple(missing)


def _require_present(plan: RowPlan, values: Sequence[Any]) -> None:
    for index, column in enumerate(plan.columns):
        if values[index] is None and not column.type.nullable and index not in plan.key:
            label = f"column {column.name} ({type_name(column.type)})"
            raise EventRefusedError("type", f"{label}: null in a NOT NULL column")


def _require_key(plan: RowPlan, values: Sequence[Any]) -> None:
    missing = [plan.columns[index].name for index in plan.key if values[index] is None]
    if missing:
        raise EventRefusedError("no_primary_key", f"no value for key {', '.join(missing)}")


def _key_changed(
    plan: RowPlan, before: Tokens, values: Sequence[Any], placeholder: Placeholder
) -> bool:
    if any(before.get(name, NULL) == NULL for name in plan.key_names):
        return False  # the old key is unknown
    try:
        old = [_value(plan.columns[index], before, placeholder) for index in plan.key]
    except EventRefusedError as error:
        if error.error_class != "type" or plan.target.needs_before:
            raise
        return False  # no row of the table has a key that its columns do not take
    return None not in old and old != [values[index] for index in plan.key]


def _deleted(
    plan: RowPlan, before: Tokens, key: bytes | None, placeholder: Placeholder
) -> tuple[Any, ...]:
    """The row that a delete removes; null for values that are unknown and not needed."""
    if plan.target.evolvable or _is_respelt(plan, before):
        _uncovered(plan, before)
    refused: dict[int, EventRefusedError] = {}
    values = [
        _deleted_value(column, before, placeholder, refused, number)
        for number, column in enumerate(plan.columns)
    ]
    _require_before(plan, before)
    if any(values[index] is None for index in plan.key):
        tokens = named_by_key(plan, key)
        for index in plan.key:
            if values[index] is None:
                values[index] = _value(plan.columns[index], tokens, placeholder)
    for number, error in refused.items():
        in_need = number in plan.key or plan.columns[number].name in plan.target.needs_values
        if values[number] is None and in_need:
            raise error
    _require_key(plan, values)
    _require_present(plan, values)
    return tuple(values)


def _is_respelt(plan: RowPlan, before: Tokens) -> bool:
    """Whether a column's value has another spelling of the column's name than the plan reads."""
    absent = {column.name for column in plan.columns if column.member not in before}
    extra = [name for name, token in before.items() if name not in plan.index and token != NULL]
    if plan.target.exact_names:
        return not absent.isdisjoint(extra)
    return not {*map(folded, absent)}.isdisjoint(map(folded, extra))


def _deleted_value(
    column: PlanColumn,
    before: Tokens,
    placeholder: Placeholder,
    refused: dict[int, EventRefusedError],
    number: int,
) -> Any:
    """A value of the row before; null if it is bad, which is recorded in `refused`."""
    try:
        return decode_value(column.codec, before.get(column.member, NULL), placeholder)
    except UnavailableValueError:
        return None
    except ValueRefusedError as error:
        refused[number] = _value_error(column, before, error)
        return None
