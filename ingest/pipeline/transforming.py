# SPDX-License-Identifier: Apache-2.0
"""Row transforms on the map side: change batches as decoded in, rows of the table out.

A table's transform follows from the settings and its schema, so a process plans it once for each
schema. Rows without a result are bad records of class `transform`, whole. Where a rule does not fit
the table at all, the rows are decoded as they are and all of them are such bad records; what the
rule lacks may arrive with the source's next schema change.
"""

import dataclasses
import json
from collections.abc import Mapping

import numpy as np

from ingest.decode.events import OFFSET_COLUMN, BadRecord, ChangeBatch
from ingest.decode.outcome import bad_record
from ingest.source.records import RawBatch
from ingest.transform.row_transform import RowTransform
from ingest.transform.rules import (
    HIDDEN_OPTION,
    KEY_OPTION,
    TransformRule,
    hidden_from_text,
    key_recipe,
    present_rule,
    source_key,
    wanted_columns,
)
from ingest.transform.table_columns import source_types
from storage.errors import InvalidRequestError
from storage.format.metadata.schema import TableSchema
from storage.format.types.types import DataField, DataType

ERROR_CLASS = "transform"


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class TableTransform:
    """The transform of the rows of one table under one of its schemas. Create it with `of`.

    Attributes:
        decode_schema: what rows are decoded with, constant columns included.
        ignored: columns of the source that are left out.
        origin: names of the metadata that rows must come with.
        behind_key: see `RowTransform`.
        moved_by: see `RowTransform`.
        lacks: whether the table lacks columns that the rule makes.
        refusal: why no row can be transformed; "" = rows can.
    """

    decode_schema: TableSchema
    ignored: frozenset[str] = frozenset()
    origin: tuple[str, ...] = ()
    behind_key: frozenset[str] = frozenset()
    moved_by: str = ""
    lacks: bool = False
    refusal: str = ""
    _rows: RowTransform | None = None

    @staticmethod
    def of(rule: TransformRule, schema: TableSchema, zone: str) -> "TableTransform":
        """Plan for a table.

        Args:
            rule: of the table.
            schema: of the table as it is.
            zone: `sink.time.zone`.
        """
        recipe = schema.options.get(KEY_OPTION)
        if rule.empty and recipe is None:
            return TableTransform(schema)
        hidden_types = hidden_from_text(schema.options.get(HIDDEN_OPTION, ""))
        try:
            _check_recipe(recipe, rule, schema, zone)
            rule = present_rule(rule, schema)
            rows = RowTransform.of(rule, schema, hidden=hidden_types, zone=zone)
        except InvalidRequestError as error:
            plain = _source_schema(rule, schema, hidden_types)
            ignored = (frozenset(rule.exclude) - wanted_columns(rule)).union(rule.derived_names)
            ignored = ignored.difference(plain.field_names)
            return TableTransform(plain, ignored=ignored, refusal=_text(error))
        return TableTransform(
            rows.decode_schema,
            ignored=rows.ignored,
            origin=tuple(sorted(rows.metadata)),
            behind_key=rows.behind_key,
            moved_by=rows.moved_by,
            lacks=bool(rows.missing),
            _rows=None if rows.identity else rows,
        )

    @property
    def plain(self) -> bool:
        """Whether rows are not changed."""
        return self._rows is None and not self.refusal

    def apply(
        self, raw: RawBatch, change: ChangeBatch, now_ms: int
    ) -> tuple[ChangeBatch | None, list[BadRecord]]:
        """Transform rows.

        Args:
            raw: the records that they come from.
            change: columns of `decode_schema`.
            now_ms: of the batch [epoch ms]; the same when it is replayed.

        Returns:
            Rows of the table (None: there are none) and the records without a result, in offset
            order.
        """
        if self.refusal:
            offsets = change.rows.column(OFFSET_COLUMN).to_numpy()
            refusals = dict.fromkeys(np.unique(offsets).tolist(), self.refusal)
            return None, _bad(raw, change.target, refusals)
        if self._rows is None:
            return change, []
        result = self._rows.apply(change.rows, change.origin, now_ms=now_ms)
        bad: list[BadRecord] = []
        if len(result.failed):
            offsets = change.rows.column(OFFSET_COLUMN).to_numpy()[result.failed]
            bad = _bad(raw, change.target, dict(zip(offsets.tolist(), result.reasons, strict=True)))
        if result.rows.num_rows == 0:
            return None, bad
        return dataclasses.replace(change, rows=result.rows, origin=None), bad


def _check_recipe(recipe: str | None, rule: TransformRule, schema: TableSchema, zone: str) -> None:
    """Refuse rules that change how keys of the table are computed."""
    if recipe is None:
        return
    previous, current = json.loads(recipe), key_recipe(rule, schema.primary_keys, zone)
    columns = sorted(
        name for name in {*previous, *current} if previous.get(name) != current.get(name)
    )
    if columns:
        raise InvalidRequestError(
            "the rule changes how keys of the table are computed",
            detail="existing rows would not be found",
            hint="revert the change, or write to another table",
            column=", ".join(columns),
        )


def _source_schema(
    rule: TransformRule, table: TableSchema, hidden_types: Mapping[str, DataType]
) -> TableSchema:
    """Return the columns known to come from the source, to decode rows that are not written."""
    source, derived = source_types(rule, table, hidden_types), rule.derived_names
    fields = [
        dataclasses.replace(field, type=source[field.name])
        for field in table.fields
        if field.name in source and field.name not in derived
    ]
    extra = [name for name in sorted(wanted_columns(rule)) if name in source]
    extra = [name for name in extra if name not in table.field_names]
    first_id = table.highest_field_id + 1
    fields += [
        DataField(id=first_id + at, name=name, type=source[name]) for at, name in enumerate(extra)
    ]
    names = {field.name for field in fields}
    return dataclasses.replace(
        table,
        fields=tuple(fields),
        highest_field_id=first_id + len(extra) - 1,
        partition_keys=tuple(name for name in table.partition_keys if name in names),
        primary_keys=tuple(n for n in source_key(rule, table.primary_keys) if n in names),
    )


def _bad(raw: RawBatch, target: str, reasons: dict[int, str]) -> list[BadRecord]:
    places = np.searchsorted(np.asarray(raw.offsets, np.int64), np.array([*reasons], np.int64))
    return [
        bad_record(raw, at, ERROR_CLASS, reason, target)
        for at, reason in zip(places.tolist(), reasons.values(), strict=True)
    ]


def _text(error: InvalidRequestError) -> str:
    """Format the error as one line."""
    parts = [error.message, error.detail, error.hint]
    facts = [f"{key}={value}" for key, value in error.context.items()]
    return "; ".join(filter(None, [*parts, *facts]))
