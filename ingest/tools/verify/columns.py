# SPDX-License-Identifier: Apache-2.0
"""Which columns are compared, which are the key, and why the others are left out."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from ingest.tools.verify.fitting import Form
from storage.errors import InvalidRequestError
from storage.format.metadata.schema import TableSchema
from storage.format.types.arrow_types import arrow_type
from storage.format.types.types import DataType
from storage.table.scan.expression_text import split_assignment


@dataclasses.dataclass(frozen=True, slots=True)
class Compared:
    """A column that is compared.

    Attributes:
        name: in the lake table.
        type: of the lake table.
        source: its name on the other side.
        form: how texts are compared.
    """

    name: str
    type: DataType
    source: str
    form: Form = Form.PLAIN


@dataclasses.dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a comparison.

    Attributes:
        keys: columns that identify a row; all of them when the table has no key.
        values: the other columns.
        keyed: whether no two rows have equal keys.
    """

    keys: tuple[Compared, ...]
    values: tuple[Compared, ...]
    keyed: bool = True

    @property
    def all(self) -> tuple[Compared, ...]:
        """Keys, then the rest: the columns of every batch."""
        return (*self.keys, *self.values)

    @property
    def key_names(self) -> list[str]:
        """Names of the keys in the lake table."""
        return [column.name for column in self.keys]

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of every batch."""
        return pa.schema([pa.field(column.name, arrow_type(column.type)) for column in self.all])


@dataclasses.dataclass(frozen=True, slots=True)
class Counterpart:
    """A column of the source that a lake column is compared with.

    Attributes:
        name: of it.
        form: how texts are compared.
    """

    name: str
    form: Form = Form.PLAIN


@dataclasses.dataclass(frozen=True, slots=True)
class LeftOut:
    """A column that is not compared, and why."""

    column: str
    reason: str


@dataclasses.dataclass(frozen=True, slots=True)
class PlannedColumns:
    """The columns of a table, compared or not.

    Attributes:
        columns: the compared ones.
        left_out: the others.
        key_left_out: columns of the lake's key that the source does not have.
    """

    columns: Columns
    left_out: tuple[LeftOut, ...]
    key_left_out: tuple[str, ...]


Find = Callable[[str, DataType], Counterpart | str]
"""The counterpart of a lake column, or why there is none."""


def plan_columns(
    schema: TableSchema,
    find: Find,
    source_names: Sequence[str],
    *,
    key: Sequence[str] = (),
    without: Mapping[str, str] | None = None,
) -> PlannedColumns:
    """Choose the columns of a comparison.

    Args:
        schema: of the lake table.
        find: looks a lake column up in the source.
        source_names: all columns of the source.
        key: columns that identify a row; none = the lake table's primary key.
        without: lake columns that are not compared, and why.

    Raises:
        InvalidRequestError: a column of the key is unknown, or nothing is left to compare.
    """
    unknown = sorted((set(key) | set(without or ())) - set(schema.field_names))
    unknown = [name for name in unknown if name in key or (without or {})[name] == EXCLUDED]
    if unknown:
        raise InvalidRequestError(
            "no such column",
            hint=f"the table has {', '.join(schema.field_names)}",
            column=unknown[0],
        )
    compared: dict[str, Compared] = {}
    left_out: list[LeftOut] = []
    for field in schema.fields:
        match = (without or {}).get(field.name) or find(field.name, field.type)
        if isinstance(match, str):
            left_out.append(LeftOut(field.name, match))
        else:
            compared[field.name] = Compared(field.name, field.type, match.name, match.form)
    key_names = list(key or schema.primary_keys)
    keys = [name for name in key_names if name in compared]
    if key_names and (not keys or (key and len(keys) < len(key))):
        raise InvalidRequestError(
            "the source lacks the table's key columns",
            hint="name columns that identify a row in both with --key",
            key=", ".join(key_names),
        )
    if not compared:
        raise InvalidRequestError("the table and the source have no column in common")
    used = {entry.source for entry in compared.values()} | {entry.column for entry in left_out}
    left_out += [
        LeftOut(name, "not in the lake table") for name in source_names if name not in used
    ]
    names = keys or list(compared)
    columns = Columns(
        tuple(compared[name] for name in names),
        tuple(column for name, column in compared.items() if name not in names),
        keyed=bool(keys),
    )
    missing = tuple(name for name in key_names if name not in compared)
    return PlannedColumns(columns, tuple(left_out), missing)


EXCLUDED = "left out by --exclude"


def derived_columns(
    *,
    computed: Sequence[str] = (),
    partition_by: Sequence[str] = (),
    masked: Mapping[str, str] | None = None,
    excluded: Sequence[str] = (),
) -> dict[str, str]:
    """Map lake columns that do not hold the source's values to the reason.

    Args:
        computed: `name = expression` each, of the pipeline.
        partition_by: columns, or `name = expression` each.
        masked: masks by column.
        excluded: by the command line.
    """
    texts = [*computed, *(text for text in partition_by if "=" in text)]
    reasons = {split_assignment(text)[0]: "computed by the pipeline" for text in texts}
    reasons |= dict.fromkeys(masked or {}, "masked by the pipeline")
    return reasons | dict.fromkeys(excluded, EXCLUDED)
