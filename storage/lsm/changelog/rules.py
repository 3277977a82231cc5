# SPDX-License-Identifier: Apache-2.0
"""What the options about changelogs may ask for, checked before a table is made.

Source: SEMANTICS.md §B.4, §C.1, §C.2, §D.7. The wording of the messages is Paimon's.
"""

from storage.errors import InvalidOptionError
from storage.format.metadata.schema import TableSchema
from storage.format.types.types import AtomicType, TypeRoot
from storage.options.options import TableOptions

__all__ = ["check_changelog"]

_PRODUCER = "changelog-producer"
_DELTA_COMMITS = "full-compaction.delta-commits"
_TIME_FIELD = "record-level.time-field"
_TIME_ROOTS = (TypeRoot.INT, TypeRoot.BIGINT, TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ)


def check_changelog(schema: TableSchema, options: TableOptions) -> None:
    """Check the changelog producer and what does not go with it.

    Args:
        schema: of the table.
        options: of the schema.

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
