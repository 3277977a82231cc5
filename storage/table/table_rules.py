# SPDX-License-Identifier: Apache-2.0
"""Checks of the options of a schema in combination, before the schema is published.

Each topic has its checks in the module that owns it; they are run from here, with those that
belong to no other. Source: SEMANTICS.md §A.9, §C.8, §G, §L.1, and Apache Paimon where that is
silent. The wording of the messages is Paimon's.
"""

from collections.abc import Callable, Mapping

from storage.errors import InvalidOptionError, InvalidRequestError, UnsupportedFeatureError
from storage.format.files.data_file import DataFileOptions
from storage.format.files.file_formats import check_compression, check_types
from storage.format.index.builder import check_file_indexes
from storage.format.metadata.schema import TableSchema, new_schema
from storage.format.row.stats import StatsMode
from storage.format.types.default_values import read_defaults
from storage.format.types.types import parse_type
from storage.lsm.write_rules import check_merging
from storage.options.options import TableOptions, option_value
from storage.table.bucket_mode import check_bucket_keys
from storage.table.iceberg import check_iceberg
from storage.table.materialized_table import check_formatters
from storage.table.retention.expire_partitions import partition_time
from storage.table.scan.format_files import check_format_table
from storage.table.scan.time_travel import check_streaming, travel_of
from storage.table.tags import TagPeriod, zone_named

# Columns and options of object tables. Source: Apache Paimon 1.0 to 1.2.


OBJECT_TABLE = "object-table"
"""Value of the option `type`."""

LOCATION = "object-location"

_TIME = "TIMESTAMP(3) WITH LOCAL TIME ZONE"
_COLUMNS = (
    ("path", "STRING NOT NULL"),
    ("parent_path", "STRING NOT NULL"),
    ("name", "STRING NOT NULL"),
    ("length", "BIGINT NOT NULL"),
    ("mtime", _TIME),
    ("atime", _TIME),
    ("owner", "STRING"),
    ("generation", "INT"),
    ("content_type", "STRING"),
    ("storage_class", "STRING"),
    ("md5_hash", "STRING"),
    ("metadata_mtime", _TIME),
    ("metadata", "MAP<STRING, STRING>"),
)


def object_schema(
    options: Mapping[str, str], *, comment: str | None = None, now_ms: int = 0
) -> TableSchema:
    """The schema of a new object table.

    Args:
        options: of the table, the location among them.
        now_ms: when it is made [epoch ms].

    Raises:
        InvalidOptionError: there is no location.
    """
    columns = [(name, parse_type(text)) for name, text in _COLUMNS]
    schema = new_schema(columns, options=options, comment=comment, now_ms=now_ms)
    check_object_table(schema)
    return schema


def check_object_table(schema: TableSchema) -> None:
    """Check the schema of an object table.

    Raises:
        InvalidOptionError: there is no location.
        InvalidRequestError: it has other columns than object tables have, or keys.
    """
    if not option_value(schema.options, LOCATION):
        raise InvalidOptionError(
            "an object table needs a directory to list",
            hint="set `object-location`",
            option=LOCATION,
        )
    types = {name: parse_type(text) for name, text in _COLUMNS}
    for field in schema.fields:
        if types.get(field.name) != field.type:
            raise InvalidRequestError(
                "the columns of an object table are fixed",
                hint="declare it without columns",
                column=field.name,
            )
    if schema.primary_keys or schema.partition_keys:
        raise InvalidRequestError("an object table has neither primary key nor partitions")


_BY_SNAPSHOT = "sequence.snapshot-ordering"
_ROW_IDS = "row-tracking.enabled"
_EVOLUTION = "data-evolution.enabled"
_CLUSTERING = "pk-clustering-override"


def check_table(schema: TableSchema) -> None:
    """Check a schema as a whole, for a new table and for a changed one.

    Raises:
        InvalidOptionError: options contradict each other or do not fit the columns.
        UnsupportedFeatureError: a file format that they choose cannot hold a column.
    """
    options = TableOptions.from_strings(schema.options)
    kind = option_value(schema.options, "type")
    if kind == "format-table":
        check_format_table(schema)
        return
    if kind in ("lance-table", "iceberg-table"):
        raise UnsupportedFeatureError(
            "there are no tables of this type here",
            hint="set it to table, format-table, object-table or materialized-table",
            option="type",
            value=kind,
        )
    if kind == "object-table":
        check_object_table(schema)
    if kind == "materialized-table":
        check_formatters(schema)
    check_bucket_keys(schema, options)
    check_file_indexes(schema.fields, options)
    check_merging(schema, options)
    check_streaming(schema, options)
    travel_of(schema.options)
    read_defaults(schema)
    _check_files(schema, options)
    _check_life(options)
    _check_snapshot_order(schema)
    _check_row_ids(schema)
    check_iceberg(schema, options)
    if _is_on(schema, _CLUSTERING) and not schema.options.get("clustering.columns"):
        raise InvalidOptionError(
            f"Cannot support '{_CLUSTERING}' mode without 'clustering.columns'",
            hint=f"remove `{_CLUSTERING}`",
            option=_CLUSTERING,
        )


def _check_files(schema: TableSchema, options: TableOptions) -> None:
    """Values of options and types that only a file format or its statistics can check."""
    levels = {
        *options.file_format_per_level,
        *options.file_compression_per_level,
        *options.stats_mode_per_level,
    }
    files = [DataFileOptions.of(options, level=level) for level in (None, *sorted(levels))]
    for file in (*files, DataFileOptions.of(options, changelog=True)):
        _naming("compression", check_compression, file.file_format, file.compression, options.raw)
        _naming("stats-mode", StatsMode.parse, file.stats_mode)
        check_types(file.file_format, schema.fields)
    for column, mode in options.field_stats_modes.items():
        _naming(f"fields.{column}.stats-mode", StatsMode.parse, mode)


def _naming(option: str, check: Callable[..., object], *values: object) -> None:
    """Check a value, and name the option in the error."""
    try:
        check(*values)
    except InvalidOptionError as error:
        error.context.setdefault("option", option)
        raise


def _check_life(options: TableOptions) -> None:
    """Values that only the maintenance after a commit interprets."""
    TagPeriod.of(options)
    for option, zone in (
        ("sink.process-time-zone", options.sink_process_time_zone),
        ("sink.watermark-time-zone", options.sink_watermark_time_zone),
    ):
        if zone is not None:
            _naming(option, zone_named, zone)
    partition_time({"": None}, None, options.partition_timestamp_formatter)


def _check_snapshot_order(schema: TableSchema) -> None:
    if not _is_on(schema, _BY_SNAPSHOT):
        return
    problem = ""
    if not schema.primary_keys:
        problem = f"{_BY_SNAPSHOT} requires a primary key"
    elif schema.options.get("sequence.field"):
        problem = f"{_BY_SNAPSHOT} = true is mutually exclusive with sequence.field"
    elif not _is_on(schema, "write-only"):
        problem = f"{_BY_SNAPSHOT} = true requires write-only = true"
    if problem:
        raise InvalidOptionError(problem, hint=f"remove `{_BY_SNAPSHOT}`", option=_BY_SNAPSHOT)


def _check_row_ids(schema: TableSchema) -> None:
    if _is_on(schema, _ROW_IDS) and schema.primary_keys:
        raise InvalidOptionError(
            "Cannot define primary-key for row tracking table",
            hint=f"remove `{_ROW_IDS}`",
            option=_ROW_IDS,
        )
    if _is_on(schema, _EVOLUTION) and not _is_on(schema, _ROW_IDS):
        raise InvalidOptionError(
            f"Data evolution config must enabled with {_ROW_IDS}",
            hint=f"remove `{_EVOLUTION}`",
            option=_EVOLUTION,
        )


def _is_on(schema: TableSchema, key: str) -> bool:
    return bool(option_value(schema.options, key))
