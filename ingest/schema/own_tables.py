# SPDX-License-Identifier: Apache-2.0
"""Tables that Lakeward keeps for itself: whether a table of such a name is one. Pure."""

from ingest.decode.events import OWN_TABLE_OPTION, SOURCE_TABLE_OPTION
from storage.errors import InvalidRequestError
from storage.format.metadata.schema import TableSchema
from storage.format.metadata.schema_changes import SetOption
from storage.format.types.types import AtomicType

__all__ = ["marked", "require_own_table"]


def require_own_table(name: str, found: TableSchema, wanted: TableSchema) -> None:
    """Refuse a foreign table that has the name of one of Lakeward's own.

    Args:
        name: `database.table`.
        found: its schema.
        wanted: what Lakeward makes; a table of an earlier version may lack later columns.

    Raises:
        InvalidRequestError: it is filled from a source table, has another key, a column of another
            type, or a column that must not be null and is not ours.
    """
    if reason := _difference(found, wanted):
        purpose = wanted.options[OWN_TABLE_OPTION]
        raise InvalidRequestError(
            f"Lakeward keeps its {purpose} in this table, but the table is another one",
            detail=reason,
            hint="move or drop the table, or have Lakeward use other names: `bad.records.table` "
            "for the quarantine, `sink.default.database` for both",
            table=name,
        )


def _difference(found: TableSchema, wanted: TableSchema) -> str:
    owner = found.options.get(SOURCE_TABLE_OPTION)
    if owner is not None:
        return f"it is filled from source table {owner}"
    purpose, mine = found.options.get(OWN_TABLE_OPTION), wanted.options[OWN_TABLE_OPTION]
    if purpose not in (None, mine):
        return f"it is Lakeward's {purpose}"
    if found.primary_keys != wanted.primary_keys:
        return f"its primary key is ({', '.join(found.primary_keys)})"
    ours = {field.name: field.type for field in wanted.fields}
    for field in found.fields:
        known = ours.get(field.name)
        if known is None and not field.type.nullable:
            return f"its column {field.name} must not be null"
        if known is not None and _root(known) != _root(field.type):
            return f"its column {field.name} is of another type"
    return ""


def _root(type_: object) -> object:
    return type_.root if isinstance(type_, AtomicType) else type(type_)


def marked(found: TableSchema, wanted: TableSchema) -> tuple[SetOption, ...]:
    """What a table of an earlier version lacks to be known as ours by every pipeline."""
    if OWN_TABLE_OPTION in found.options:
        return ()
    return (SetOption(OWN_TABLE_OPTION, wanted.options[OWN_TABLE_OPTION]),)
