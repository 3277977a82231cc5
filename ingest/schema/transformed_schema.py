# SPDX-License-Identifier: Apache-2.0
"""What row transforms mean for the schema of a table: `schema_sync`'s view of the source's columns.

Decoders report columns as the source has them. The table has some of them not at all (excluded),
some with another type (masked), and columns besides that the pipeline makes. Source types that the
table does not show are kept in a table option (`HIDDEN_OPTION`). Pure and idempotent: on a schema
that has everything nothing is left to do.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence

from ingest.decode.events import ObservedField, SchemaDelta
from ingest.decode.types.widening import nullable, union_type
from ingest.transform.row_transform import RowTransform
from ingest.transform.rules import (
    HIDDEN_OPTION,
    KEY_OPTION,
    TableShape,
    TransformRule,
    hidden_from_text,
    hidden_to_text,
    key_recipe,
    present_rule,
    stored_type,
    table_shape,
    wanted_columns,
)
from storage.errors import InvalidRequestError
from storage.format.metadata.schema import TableSchema
from storage.format.metadata.schema_changes import AddColumn, SchemaChange, SetOption
from storage.format.types.type_text import type_name
from storage.format.types.types import DataType
from storage.options.options import option_value

__all__ = ["NO_RULES", "TableRules", "Wanted", "fixed_buckets", "moving_partitions"]


def moving_partitions(rule: TransformRule, primary_key: Sequence[str]) -> tuple[str, ...]:
    """Partition columns that are not in the key, so that a key moves when one changes."""
    if not primary_key:
        return ()
    return tuple(name for name in rule.partition_columns if name not in primary_key)


def fixed_buckets(moving: Sequence[str], bucket: str, **context: object) -> InvalidRequestError:
    """The error of a table whose keys move between partitions with fixed buckets."""
    return InvalidRequestError(
        "rows of one key would be in several partitions",
        detail=f"partition.by: {', '.join(moving)} is not in the primary key",
        hint="set `bucket: -1`, so that an index says where each key is, or add "
        f"{', '.join(moving)} to `primary.key`",
        bucket=bucket,
        **context,
    )


@dataclasses.dataclass(frozen=True, slots=True)
class Wanted:
    """What an existing table is to get for some deltas.

    Attributes:
        deltas: what remains of them, columns as the table is to have them.
        changes: what the transforms need besides.
        reasons: why some of the deltas cannot be covered.
    """

    deltas: tuple[SchemaDelta, ...]
    changes: tuple[SchemaChange, ...] = ()
    reasons: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class TableRules:
    """The transforms of a table as far as its schema is concerned.

    Attributes:
        rule: as configured.
        zone: `sink.time.zone`.
    """

    rule: TransformRule
    zone: str

    def shape(
        self, columns: Sequence[tuple[str, DataType]], primary_key: Sequence[str]
    ) -> TableShape:
        """The columns of a new table.

        Args:
            columns: of the source, in order.
            primary_key: of the table.

        Raises:
            InvalidRequestError: the rule does not fit them.
        """
        return table_shape(self.rule, columns, primary_key, self.zone)

    def check_buckets(self, primary_key: Sequence[str], options: Mapping[str, str]) -> None:
        """Check that rows can be found in a new table.

        Raises:
            InvalidRequestError: its keys move between partitions with fixed buckets.
        """
        moving = moving_partitions(self.rule, primary_key)
        if moving and option_value({"bucket": "1", **options}, "bucket") != -1:
            raise fixed_buckets(moving, options.get("bucket", ""))

    def options(self, shape: TableShape, primary_key: Sequence[str]) -> dict[str, str]:
        """Options that keep what a new table does not show."""
        recipe = key_recipe(self.rule, primary_key, self.zone)
        found = {HIDDEN_OPTION: hidden_to_text(shape.hidden)} if shape.hidden else {}
        return found | ({KEY_OPTION: json.dumps(recipe, sort_keys=True)} if recipe else {})

    def wanted(self, existing: TableSchema, deltas: Sequence[SchemaDelta]) -> Wanted:
        """Translate deltas of an existing table, and add the columns that the pipeline makes.

        Args:
            existing: schema of the table.
            deltas: of this table.
        """
        if self.rule.empty:
            return Wanted(tuple(deltas))
        return TableRules(present_rule(self.rule, existing), self.zone)._wanted(existing, deltas)

    def _wanted(self, existing: TableSchema, deltas: Sequence[SchemaDelta]) -> Wanted:
        known = hidden_from_text(existing.options.get(HIDDEN_OPTION, ""))
        hidden, reasons = dict(known), list[str]()
        shown = tuple(
            dataclasses.replace(delta, fields=self._shown(delta.fields, existing, hidden, reasons))
            for delta in deltas
        )
        changes: list[SchemaChange] = []
        if hidden != known:
            changes.append(SetOption(HIDDEN_OPTION, hidden_to_text(hidden)))
        missing = self._missing(existing, hidden)
        changes += [AddColumn(name, nullable(type_)) for name, type_ in missing]
        return Wanted(shown, tuple(changes), tuple(reasons))

    def _shown(
        self,
        fields: Sequence[ObservedField],
        existing: TableSchema,
        hidden: dict[str, DataType],
        reasons: list[str],
    ) -> tuple[ObservedField, ...]:
        """Fields as the table is to have them; `hidden` grows."""
        needed = wanted_columns(self.rule)
        found: list[ObservedField] = []
        for field in fields:
            try:
                stored = stored_type(self.rule, field.name, field.type)
            except InvalidRequestError as error:
                reasons.append(f"column {field.name}: {error}")
                continue
            if stored is None and field.name not in needed:
                continue
            if stored is None or nullable(stored) != nullable(field.type):
                _hide(field, existing, hidden, reasons)
            if stored is not None:
                found.append(dataclasses.replace(field, type=nullable(stored)))
        return tuple(found)

    def _missing(
        self, existing: TableSchema, hidden: dict[str, DataType]
    ) -> tuple[tuple[str, DataType], ...]:
        try:
            return RowTransform.of(self.rule, existing, hidden=hidden, zone=self.zone).missing
        except InvalidRequestError:
            return ()  # its rows go to quarantine, with the reason


NO_RULES = TableRules(TransformRule(), "UTC")
"""The table is as the source is."""


def _hide(
    field: ObservedField,
    existing: TableSchema,
    hidden: dict[str, DataType],
    reasons: list[str],
) -> None:
    """Keep the source's type of a column that the table does not have, or has otherwise."""
    current = hidden.get(field.name)
    if current is None and field.name in existing.field_names:
        current = nullable(existing.field(field.name).type)  # a mask that keeps the type
    union = nullable(field.type) if current is None else union_type(current, field.type)
    if union is None:
        shown = "" if current is None else type_name(current)
        reasons.append(f"column {field.name}: {shown} cannot become {type_name(field.type)}")
    elif field.name in hidden or union != current:
        hidden[field.name] = union
