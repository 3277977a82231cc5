# SPDX-License-Identifier: Apache-2.0
"""What the options about merging and changelogs may ask for, checked before a table is created.

Source: SEMANTICS.md §A.2, §A.6, §B, §C.1, §C.2, §D.7. The wording of the messages is Paimon's.
"""

from storage.errors import InvalidOptionError
from storage.format.metadata.schema import TableSchema
from storage.format.types.types import AtomicType, RowType, TypeRoot
from storage.lsm.merge_functions import merge_function_for
from storage.options.options import TableOptions

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
