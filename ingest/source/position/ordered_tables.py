# SPDX-License-Identifier: Apache-2.0
"""Tables whose rows are in the order of the source: their columns, options and limits.

Such a table has the columns `_seq_epoch`, `_seq_1`, `_seq_2`, `_seq_3` as its `sequence.field`, so
that the merge, not the arrival, decides which row of a key is the newest. The option
`lakeward.position` notes the kind of its positions; `lakeward.position.epochs` the moments since
which its sources restarted their logs (`docs/adr/ingest/0013`).
"""

import dataclasses
from collections.abc import Mapping, Sequence

import orjson

from ingest.source.position.kinds import KINDS, PositionKind
from storage.errors import InvalidRequestError
from storage.format.metadata.schema import TableSchema
from storage.format.types.type_text import parse_type
from storage.format.types.types import DataType
from storage.options.options import TableOptions, option_value
from storage.table.bucket_mode import BucketMode, bucket_mode

SOURCE = "source"
"""Value of `source.ordering`."""

POSITION_OPTION = "lakeward.position"
EPOCHS_OPTION = "lakeward.position.epochs"
POSITION_COLUMNS = ("_seq_epoch", "_seq_1", "_seq_2", "_seq_3")

Epochs = Mapping[str, tuple[int, ...]]
"""By server the moments [epoch ms], ascending, each of which begins an epoch; the first is 0."""

_SEQUENCE_FIELD = "sequence.field"
_ENGINES = ("deduplicate", "partial-update")


def position_kind(schema: TableSchema) -> PositionKind | None:
    """The kind of a table's positions; None = arrival orders its rows."""
    return KINDS.get(schema.options.get(POSITION_OPTION, ""))


def position_columns(kind: str) -> list[tuple[str, DataType]]:
    """The columns that a new table gets after all others."""
    types = (parse_type("BIGINT"), *KINDS[kind].types)
    return list(zip(POSITION_COLUMNS, types, strict=True))


def position_options(kind: str) -> dict[str, str]:
    """The options that a new table gets."""
    return {_SEQUENCE_FIELD: ",".join(POSITION_COLUMNS), POSITION_OPTION: kind}


def unordered(options: Mapping[str, str]) -> str:
    """Why a table with these options cannot be in the order of the source; "" = it can."""
    sequence = options.get(_SEQUENCE_FIELD)
    if sequence is not None and sequence != ",".join(POSITION_COLUMNS):
        return f"it defines its own order, sequence.field = {sequence}"
    if option_value(options, "sequence.field.sort-order"):
        return "its sequence.field.sort-order is descending"
    engine = option_value(options, "merge-engine")
    if engine == "first-row":
        return "merge-engine first-row keeps what arrived first"
    if engine not in _ENGINES:
        return f"merge-engine {engine} counts a change again whenever it is delivered again"
    return ""


def ordering_refused(schema: TableSchema, ordering: str) -> str:
    """Why a pipeline of this `source.ordering` cannot write a table; "" = it can."""
    kind = position_kind(schema)
    if ordering != SOURCE:
        return (
            ""
            if kind is None
            else "the table is in the order of the source and its rows need positions: set "
            "source.ordering: source"
        )
    if kind is None:
        return (
            "the table was not created for source.ordering: source, it has no position columns: "
            "route to a new table, or set source.ordering: kafka"
        )
    types = {field.name: field.type for field in schema.fields}
    for name, type_ in position_columns(kind.name):
        if name not in types:
            return f"the table has lost its column {name}: route to a new table"
        if dataclasses.replace(types[name], nullable=True) != type_:
            return f"the table's column {name} has another type than positions of {kind.name}"
    try:
        epochs_of(schema)
    except InvalidRequestError as error:
        return f"{error}; {error.hint}"
    reason = unordered(schema.options) or _unordered_keys(schema)
    return f"the table cannot be ordered by source position: {reason}" if reason else ""


def _unordered_keys(schema: TableSchema) -> str:
    if not schema.primary_keys:
        return "it has no primary key"
    if schema.options.get(_SEQUENCE_FIELD) is None:
        return "it has no sequence.field any more"
    try:
        mode = bucket_mode(schema, TableOptions.from_strings(schema.options))
    except InvalidRequestError as error:
        return str(error)
    if mode is BucketMode.CROSS_PARTITION:
        return "its keys move between partitions, where the last row to arrive counts"
    return ""


def epochs_of(schema: TableSchema) -> Epochs:
    """The epochs of a table's sources.

    Raises:
        InvalidRequestError: the option is malformed.
    """
    text = schema.options.get(EPOCHS_OPTION)
    if text is None:
        return {}
    try:
        raw = orjson.loads(text)
        return {str(s): tuple(sorted({int(m) for m in raw[s]})) for s in raw}
    except (ValueError, TypeError) as error:
        raise InvalidRequestError(
            "a table's epochs cannot be read",
            hint='write them as {"server": [epoch milliseconds, …]}',
            option=EPOCHS_OPTION,
            value=text,
        ) from error


def added_epochs(schema: TableSchema, observed_epochs: Sequence[tuple[str, int]]) -> str | None:
    """The option's text with more epochs; None when all are in it.

    Args:
        schema: of the table.
        observed_epochs: (server, moment) pairs. Of each server only the earliest is added now, as
            it may explain the others.
    """
    current = epochs_of(schema)
    epochs = {server: list(moments) for server, moments in current.items()}
    for server in sorted({server for server, _ in observed_epochs}):
        moment = min(m for s, m in observed_epochs if s == server)
        if moment not in epochs.setdefault(server, []):
            epochs[server] = sorted([*epochs[server], moment])
    if {server: tuple(moments) for server, moments in epochs.items()} == dict(current):
        return None
    return orjson.dumps(epochs, option=orjson.OPT_SORT_KEYS).decode()
