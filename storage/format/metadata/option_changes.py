# SPDX-License-Identifier: Apache-2.0
"""What may happen to table options when a schema changes. Pure; options are raw texts here.

Source: SEMANTICS.md §H.1 (renames reach into options) and §H.5 (options fixed once there is data).
"""

from collections.abc import Mapping

from storage.errors import InvalidSchemaChangeError
from storage.format.metadata.schema import TableSchema
from storage.options.options import find_option, option_value

__all__ = [
    "check_option_references",
    "removed_option",
    "renamed_in_options",
    "set_option",
]

_FIXED = frozenset(
    {
        "bucket-key",
        "bucket-function.type",
        "merge-engine",
        "sequence.snapshot-ordering",
        "rowkind.field",
        "primary-key",
        "partition",
        "primary-key.nullable",
        "dynamic-bucket.initial-buckets",
        "aggregation.remove-record-on-delete",
        "partial-update.remove-record-on-delete",
        "partial-update.remove-record-on-sequence-group",
        "force-lookup",
        "data-file.path-directory",
        "row-tracking.enabled",
        "data-evolution.enabled",
        "index-file-in-data-file-dir",
        "pk-clustering-override",
    }
)
"""Fixed once the table has snapshots."""

_FIXED_MESSAGE = "change '{}' is not supported yet."
"""Paimon's words, full stop included."""

_NEVER_OFF = frozenset({"ignore-delete", "ignore-update-before"})
_COLUMN_LISTS = ("bucket-key", "sequence.field", "rowkind.field")
_COLUMN_NAMES = {"sequence.field": "Sequence field:", "rowkind.field": "Rowkind field:"}
_FIELDS, _GROUP = "fields.", ".sequence-group"


def set_option(
    options: Mapping[str, str], key: str, value: str, *, has_snapshots: bool
) -> dict[str, str]:
    """The options with one set.

    Raises:
        InvalidSchemaChangeError: the option is fixed, or fixed once there is data.
    """
    if options.get(key) != value:
        _check_changeable(options, key, value, has_snapshots)
    return {**options, key: value}


def removed_option(options: Mapping[str, str], key: str, *, has_snapshots: bool) -> dict[str, str]:
    """The options without one; no error when it was not set.

    Raises:
        InvalidSchemaChangeError: the option is fixed, or fixed once there is data.
    """
    if key in options:
        _check_changeable(options, key, None, has_snapshots)
    return {name: value for name, value in options.items() if name != key}


def renamed_in_options(options: Mapping[str, str], old: str, new: str) -> dict[str, str]:
    """The options with a column's new name wherever they name the column."""
    renamed = {}
    for key, value in options.items():
        if key in _COLUMN_LISTS or key.endswith(_GROUP):
            value = _renamed_list(value, old, new)
        if key.startswith(_FIELDS + old + "."):
            key = _FIELDS + new + key.removeprefix(_FIELDS + old)
        elif key.startswith(_FIELDS) and key.endswith(_GROUP):
            columns = key.removeprefix(_FIELDS).removesuffix(_GROUP)
            key = _FIELDS + _renamed_list(columns, old, new) + _GROUP
        renamed[key] = value
    return renamed


def check_option_references(schema: TableSchema) -> None:
    """Check that columns which options rely on still exist.

    Raises:
        InvalidSchemaChangeError: names option and column.
    """
    for key, value in schema.options.items():
        columns = value if key in _COLUMN_LISTS else ""
        if key.startswith(_FIELDS) and key.endswith(_GROUP):
            columns = f"{key.removeprefix(_FIELDS).removesuffix(_GROUP)},{value}"
        for column in filter(None, (part.strip() for part in columns.split(","))):
            if column not in schema.field_names:
                what = _COLUMN_NAMES.get(key, "Field")
                raise InvalidSchemaChangeError(
                    f"{what} '{column}' can not be found in table schema",
                    key=key,
                    column=column,
                )


def _check_changeable(
    options: Mapping[str, str], key: str, value: str | None, has_snapshots: bool
) -> None:
    if key == "type":
        raise _refused(_FIXED_MESSAGE.format(key), key, "the kind of a table never changes")
    if not has_snapshots:
        return
    if key in _FIXED or (key.startswith("blob") and key.endswith("-field")):
        raise _refused(_FIXED_MESSAGE.format(key), key, "it is fixed once the table has data")
    if key == "bucket":
        _check_bucket(options.get(key, "-1"), value)
    row = find_option(key)
    key = key if row is None else row.key  # an alias is the same option
    if key in _NEVER_OFF and option_value(options, key):
        message = f"cannot change {key} from true to false"
        raise _refused(message, key, "rows were left out while it was on")
    modifiable = option_value(options, "deletion-vectors.modifiable")
    if key == "deletion-vectors.enabled" and not modifiable:
        message = "cannot change deletion vectors mode"
        raise _refused(message, key, "it needs `deletion-vectors.modifiable` to be true")


def _check_bucket(old: str, new: str | None) -> None:
    if new is None:
        raise _refused("cannot reset bucket", "bucket", "the table has data")
    from_dynamic = _is_dynamic(old)
    if from_dynamic != _is_dynamic(new):
        message = (
            "cannot change bucket when it is -1" if from_dynamic else "cannot change bucket to -1"
        )
        raise _refused(
            message, "bucket", "a table with data cannot turn from or to dynamic buckets"
        )


def _is_dynamic(text: str) -> bool:
    return bool(option_value({"bucket": text}, "bucket") == -1)


def _refused(message: str, key: str, reason: str) -> InvalidSchemaChangeError:
    return InvalidSchemaChangeError(message, detail=reason, key=key)


def _renamed_list(text: str, old: str, new: str) -> str:
    return ",".join(new if part.strip() == old else part for part in text.split(","))
