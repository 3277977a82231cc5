# SPDX-License-Identifier: Apache-2.0
"""What happens to rows before they reach the write buffer: checks, defaults, kind filters.

Source: SEMANTICS.md §A.3 and §A.4. Data plane: whole columns.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from storage.errors import InternalError, InvalidOptionError, InvalidRequestError
from storage.format.metadata.schema import TableSchema
from storage.format.metadata.snapshot import BATCH_COMMIT_IDENTIFIER
from storage.format.types.default_values import default_of, fill_null
from storage.format.types.types import VALUE_KIND, AtomicType, DataField, RowKind, RowType, TypeRoot
from storage.lsm.merge_functions import merge_function_for
from storage.options.options import TableOptions

_KIND_TEXTS = ("+I", "-U", "+U", "-D")
"""Texts of the row kinds, indexed by code; lower case is accepted, too."""


def accept_rows(
    batch: pa.RecordBatch, schema: TableSchema, options: TableOptions
) -> tuple[pa.Array, list[pa.Array]]:
    """The rows that go into the buffer, in the columns of the table.

    Columns are found by name: a nullable one that is missing is null, one of a narrower type is
    widened, further columns are left out.

    Args:
        batch: input batch: value columns and `_VALUE_KIND` int8, in arrival order.
        schema: of the table.
        options: of the table; `rowkind.field` names a column that replaces the kinds, and
            `ignore-delete` and `ignore-update-before` drop rows.

    Returns:
        The kinds (int8) and the value columns in schema order, of the rows that stay.

    Raises:
        InvalidRequestError: a NOT NULL column holds null, a value does not fit its column, or
            the column of row kinds holds something else.
        InternalError: there is no `_VALUE_KIND`.
    """
    position = batch.schema.get_field_index(VALUE_KIND)
    if position < 0:
        raise InternalError("a writer received rows without row kinds", column=VALUE_KIND)
    kinds = batch.column(position)
    columns = [
        _column(batch, field, target)
        for field, target in zip(schema.fields, schema.arrow_schema, strict=True)
    ]
    if options.rowkind_field is not None:
        kinds = _kinds_of(columns[schema.field_names.index(options.rowkind_field)], options)
    dropped_kinds = _dropped_kinds(options)
    if dropped_kinds:
        stays = np.isin(kinds.to_numpy(zero_copy_only=False), dropped_kinds, invert=True)
        if not stays.all():
            mask = pa.array(stays)
            kinds = kinds.filter(mask)
            columns = [column.filter(mask) for column in columns]
    return kinds, columns


def without_ignored(
    batch: pa.RecordBatch, schema: TableSchema, options: TableOptions
) -> pa.RecordBatch:
    """The rows of a batch that a writer would accept, before their keys are looked up.

    Rows that `ignore-delete` and `ignore-update-before` drop reach no bucket: they open no writer,
    and no index records their keys.

    Args: and raises: as `accept_rows`.
    """
    if not _dropped_kinds(options):
        return batch
    kinds, columns = accept_rows(batch, schema, options)
    return pa.RecordBatch.from_arrays([*columns, kinds], names=[*schema.field_names, VALUE_KIND])


def _kinds_of(column: pa.Array, options: TableOptions) -> pa.Array:
    """Row kinds (int8) from the texts of a column."""
    if column.null_count:
        raise InvalidRequestError(
            "Row kind cannot be null",
            hint="give the column one of +I, -U, +U, -D",
            column=options.rowkind_field,
        )
    texts = pa.array(_KIND_TEXTS)
    codes = pc.index_in(pc.ascii_upper(column.cast(pa.string())), value_set=texts)
    if codes.null_count:
        row = int(np.argmax(pc.is_null(codes).to_numpy(zero_copy_only=False)))
        raise InvalidRequestError(
            f"Unsupported short string '{column[row]}' for row kind",
            hint="give the column one of +I, -U, +U, -D",
            column=options.rowkind_field,
        )
    return codes.cast(pa.int8())


def _dropped_kinds(options: TableOptions) -> tuple[int, ...]:
    if options.ignore_delete:
        return (RowKind.UPDATE_BEFORE, RowKind.DELETE)
    return (RowKind.UPDATE_BEFORE,) if options.ignore_update_before else ()


def _column(batch: pa.RecordBatch, field: DataField, arrow_field: pa.Field) -> pa.Array:
    position = batch.schema.get_field_index(field.name)
    if position < 0:
        column = pa.nulls(batch.num_rows, arrow_field.type)
    else:
        column = batch.column(position)
        if column.type != arrow_field.type:
            column = _widened(column, arrow_field)
    if column.null_count == 0:
        return column
    if not field.type.nullable:
        raise InvalidRequestError(
            f"cannot write null to non-null column({field.name})",
            hint="give the column a value, or make it nullable",
            column=field.name,
        )
    if field.default is None:
        return column
    return fill_null(column, default_of(field.default, field.type, field.name))


def _widened(column: pa.Array, arrow_field: pa.Field) -> pa.Array:
    try:
        return column.cast(arrow_field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidRequestError(
            "a value does not fit its column",
            detail=str(error),
            hint="change the type of the column, or convert the values before writing",
            column=arrow_field.name,
            expected=arrow_field.type,
            found=column.type,
        ) from error


# Which compactions belong to a commit, by the options and the commit's identifier. Pure.
#
# Source: SEMANTICS.md §C.3 and §D.7. Everything follows from the identifier, so that a restarted
# job, or a writer that lives for one commit only, decides as one that never stopped.


def full_compaction_interval(options: TableOptions) -> int | None:
    """Commits of a stream from one full compaction to the next; None = none is asked for."""
    interval = options.full_compaction_delta_commits
    if interval is None or interval < 0:
        return 1 if options.changelog_producer == "full-compaction" else None
    return max(1, interval)


def has_period(options: TableOptions) -> bool:
    """Whether some compaction comes with every n-th commit, so that identifiers matter."""
    if options.write_only:
        return False
    gentle = options.needs_lookup and options.lookup_compact == "gentle"
    return gentle or full_compaction_interval(options) is not None


def merges_everything(options: TableOptions, identifier: int | None) -> bool:
    """Whether a commit compacts fully what was written since the last full compaction.

    An identifier of None is of no stream, which never asks for it.
    """
    interval = full_compaction_interval(options)
    if interval is None or identifier is None or options.write_only:
        return False
    return identifier == BATCH_COMMIT_IDENTIFIER or identifier % interval == 0


def merges_level_0(options: TableOptions, identifier: int | None) -> bool:
    """Whether a commit compacts all of level 0 that it finds in the buckets it writes.

    An identifier of None is of no stream, which waits as a batch job does.
    """
    if not options.needs_lookup or options.write_only:
        return False
    batch = identifier is None or identifier == BATCH_COMMIT_IDENTIFIER
    if not (batch or options.lookup_wait or options.commit_force_compact):
        return False
    if options.lookup_compact == "gentle":
        return identifier is not None and identifier % options.lookup_compact_max_interval == 0
    return True


# What the options about merging and changelogs may ask for, checked before a table is created.
#
# Source: SEMANTICS.md §A.2, §A.6, §B, §C.1, §C.2, §D.7. The wording of the messages is Paimon's.


_DEFAULT_FUNCTION = "default-aggregate-function"
_PRODUCER = "changelog-producer"
_DELTA_COMMITS = "full-compaction.delta-commits"
_TIME_FIELD = "record-level.time-field"
_TIME_ROOTS = (TypeRoot.INT, TypeRoot.BIGINT, TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ)


def check_merging(schema: TableSchema, options: TableOptions) -> None:
    """Check sequence fields, the row kind field, the merge engine, and the changelog producer.

    Raises:
        InvalidOptionError: an option asks for something that is not there or not allowed.
    """
    _check_columns(schema, options)
    _check_sequence_fields(schema, options)
    _check_kind_column(schema, options)
    _check_changelog(schema, options)
    if schema.primary_keys:
        merge_function_for(options, schema)


def _check_columns(schema: TableSchema, options: TableOptions) -> None:
    """Every `fields.<name>…` option is about columns of the table."""
    for key in options.raw:
        parts = key.split(".")
        if parts[0] != "fields" or len(parts) < 2:
            continue
        names = parts[1].split(",")
        for name in names:
            if name != _DEFAULT_FUNCTION and name not in schema.field_names:
                raise InvalidOptionError(
                    f"Field {name} can not be found in table schema",
                    hint=f"the table has {', '.join(schema.field_names)}",
                    option=key,
                )
        if len(parts) > 3 and len(names) == 1 and isinstance(schema.field(names[0]).type, RowType):
            raise InvalidOptionError(
                f"Nested-field path is not supported on ROW field '{names[0]}'",
                hint="set the option for the whole column",
                option=key,
            )


def _check_sequence_fields(schema: TableSchema, options: TableOptions) -> None:
    names = options.sequence_field
    if not names and "sequence.field" in options.raw:
        _refuse_sequence("Sequence field: '' can not be found in table schema", options)
    if names and options.merge_engine == "first-row":
        _refuse_sequence("Do not support use sequence field on FIRST_ROW merge engine", options)
    for name in names:
        problem = ""
        if name not in schema.field_names:
            problem = f"Sequence field: '{name}' can not be found in table schema"
        elif f"fields.{name}.aggregate-function" in options.merge_columns:
            problem = f"Should not define aggregation on sequence field: '{name}'"
        elif names.count(name) > 1:
            problem = f"Sequence field '{name}' is defined repeatedly"
        elif not isinstance(schema.field(name).type, AtomicType):
            problem = f"Sequence field '{name}' has a type without an order"
        if problem:
            _refuse_sequence(problem, options)
    if names and schema.primary_keys and set(schema.partition_keys) - set(schema.primary_keys):
        _refuse_sequence(
            "You can not use sequence.field in cross partition update case (Primary key constraint "
            f"'{list(schema.primary_keys)}' not include all partition fields "
            f"'{list(schema.partition_keys)}')",
            options,
        )


def _refuse_sequence(problem: str, options: TableOptions) -> None:
    raise InvalidOptionError(
        problem,
        hint="change or remove `sequence.field`",
        option="sequence.field",
        value=",".join(options.sequence_field),
    )


def _check_kind_column(schema: TableSchema, options: TableOptions) -> None:
    name = options.rowkind_field
    if name is None:
        return
    if name not in schema.field_names:
        raise InvalidOptionError(
            f"Rowkind field: '{name}' can not be found in table schema",
            hint=f"the table has {', '.join(schema.field_names)}",
            option="rowkind.field",
        )
    kind = schema.field(name).type
    if not isinstance(kind, AtomicType) or kind.root not in (TypeRoot.CHAR, TypeRoot.VARCHAR):
        raise InvalidOptionError(
            f"only support string type for rowkind, but {name} is another",
            hint="name a column of type STRING",
            option="rowkind.field",
            value=name,
        )


def _check_changelog(schema: TableSchema, options: TableOptions) -> None:
    """Check the changelog producer and what does not go with it.

    Raises:
        InvalidOptionError: options contradict each other or do not fit the table.
    """
    keyed = bool(schema.primary_keys)
    producer = options.changelog_producer
    if not keyed and producer != "none":
        raise InvalidOptionError(
            f"Can not set {_PRODUCER} on table without primary keys, please define primary keys.",
            hint=f"define a primary key, or remove `{_PRODUCER}`",
            option=_PRODUCER,
            value=producer,
        )
    if producer == "lookup" and options.full_compaction_delta_commits is not None:
        raise InvalidOptionError(
            f"'{_DELTA_COMMITS}' is incompatible with '{_PRODUCER}'='lookup'",
            hint=f"set `{_PRODUCER}` to full-compaction, or remove `{_DELTA_COMMITS}`",
            option=_DELTA_COMMITS,
            value=options.full_compaction_delta_commits,
        )
    if not keyed and options.bucket == -1 and options.full_compaction_delta_commits is not None:
        raise InvalidOptionError(
            f"AppendOnlyTable of unaware or dynamic bucket does not support '{_DELTA_COMMITS}'",
            hint=f"remove `{_DELTA_COMMITS}`",
            option=_DELTA_COMMITS,
            value=options.full_compaction_delta_commits,
        )
    if options.merge_engine == "first-row" and producer in ("input", "full-compaction"):
        raise InvalidOptionError(
            "Only support 'none' and 'lookup' changelog-producer on FIRST_ROW merge engine",
            hint=f"set `{_PRODUCER}` to lookup",
            option=_PRODUCER,
            value=producer,
        )
    _check_time_field(schema, options)


def _check_time_field(schema: TableSchema, options: TableOptions) -> None:
    name = options.record_level_time_field
    if not name:
        if options.record_level_expire_time_ms is None:
            return
        raise InvalidOptionError(
            "You should set time field for record-level expire.",
            hint=f"set `{_TIME_FIELD}`, or remove `record-level.expire-time`",
            option=_TIME_FIELD,
        )
    if name not in schema.field_names:
        raise InvalidOptionError(
            f"Can not find time field {name} for record level expire.",
            hint=f"the table has {', '.join(schema.field_names)}",
            option=_TIME_FIELD,
        )
    kind = schema.field(name).type
    if not isinstance(kind, AtomicType) or kind.root not in _TIME_ROOTS:
        raise InvalidOptionError(
            "The record level time field type should be one of INT, BIGINT, or TIMESTAMP",
            hint="name another column",
            option=_TIME_FIELD,
            value=name,
        )
