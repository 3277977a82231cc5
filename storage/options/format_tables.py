# SPDX-License-Identifier: Apache-2.0
"""Options of format tables, object tables and materialized tables.

Source: SEMANTICS.md §L.2, and Apache Paimon's options of the same names. They are read with
`options.option_value`, because these tables exist before a table of files does.
"""

from storage.options.values import (
    Option,
    boolean,
    character,
    choice,
    ignored,
    option,
    refused,
    separator,
    text,
)

__all__ = ["TYPED"]

TABLE_TYPES = (
    "table",
    "format-table",
    "materialized-table",
    "object-table",
    "lance-table",
    "iceberg-table",
)

TYPED: tuple[Option, ...] = (
    option(
        "type",
        choice(*TABLE_TYPES),
        "table",
        "Kind of table: a table of snapshots, a directory of files (`format-table`), an index of "
        "the objects of a directory (`object-table`), or the result of a query "
        "(`materialized-table`).",
        mutable=False,
        by_key=True,
        implemented=("table", "materialized-table", "object-table"),  # format tables: elsewhere
    ),
    option(
        "format-table.partition-path-only-value",
        boolean,
        "false",
        "Partition directories of a format table are named by the value alone.",
        mutable=False,
        by_key=True,
    ),
    option(
        "format-table.file.compression",
        text,
        None,
        "Compression of the files of a format table, where `file.compression` is not set; "
        "otherwise snappy for Parquet, zstd for ORC, none for text.",
        by_key=True,
        aliases=("compression",),
    ),
    refused(
        "format-table.commit-hive-sync-url",
        text,
        None,
        "Metastore in which new partitions of a format table are registered.",
    ),
    *ignored(
        "Which engine reads a format table; this one does whatever is said.",
        ("format-table.implementation", choice("paimon", "engine"), "paimon"),
        mutable=False,
    ),
    *ignored(
        "Directories of a format table are listed one after the other.",
        ("format-table.scan.list-parallelism", text, None),
    ),
    option(
        "csv.field-delimiter",
        character,
        ",",
        "Character between the fields of a CSV line.",
        by_key=True,
        aliases=("field-delimiter", "seq", "delimiter"),
    ),
    option(
        "csv.line-delimiter",
        separator,
        r"\n",
        "Text at the end of a CSV line; `\\n` or `\\r\\n` to be read.",
        by_key=True,
        aliases=("lineSep",),
    ),
    option(
        "csv.quote-character",
        character,
        '"',
        "Stands around fields with delimiters.",
        by_key=True,
        aliases=("quote",),
    ),
    option(
        "csv.escape-character",
        character,
        "\\",
        "Stands before quotes inside of quotes.",
        by_key=True,
        aliases=("escape",),
    ),
    option(
        "csv.include-header",
        boolean,
        "false",
        "Whether the first line of a CSV file names the columns.",
        by_key=True,
        aliases=("header",),
    ),
    option(
        "csv.null-literal",
        separator,
        "",
        "Text of a null in CSV.",
        by_key=True,
        aliases=("nullvalue",),
    ),
    option(
        "csv.mode",
        choice("permissive", "dropmalformed", "failfast"),
        "permissive",
        "A CSV field that is no value of its column: null, the row left out, or an error.",
        by_key=True,
        aliases=("mode",),
    ),
    option(
        "json.ignore-parse-errors",
        boolean,
        "false",
        "JSON lines that cannot be parsed are left out, and values that do not fit are null.",
        by_key=True,
    ),
    option(
        "json.line-delimiter",
        separator,
        r"\n",
        "Text at the end of a JSON line.",
        by_key=True,
    ),
    refused(
        "json.map-null-key-mode",
        choice("fail", "drop", "literal"),
        "fail",
        "What a null key of a map becomes in JSON.",
    ),
    *ignored(
        "Null keys of maps are refused.",
        ("json.map-null-key-literal", text, "null"),
    ),
    option(
        "text.line-delimiter",
        separator,
        r"\n",
        "Text at the end of a line of a text file. Also `lineSep`.",
        by_key=True,
    ),
    option(
        "object-location",
        text,
        None,
        "Directory whose objects an object table lists.",
        mutable=False,
        by_key=True,
    ),
    option(
        "materialized-table.definition-query",
        text,
        None,
        "Query whose result a materialized table holds.",
        by_key=True,
    ),
    option(
        "materialized-table.interval-freshness",
        text,
        None,
        "How old the rows of a materialized table may be, in the unit of the next option.",
        by_key=True,
    ),
    option(
        "materialized-table.interval-freshness.time-unit",
        choice("second", "minute", "hour", "day"),
        None,
        "Unit of the freshness.",
        by_key=True,
    ),
    option(
        "materialized-table.logical-refresh-mode",
        choice("automatic", "full", "continuous"),
        None,
        "How the table was declared to be refreshed.",
        by_key=True,
    ),
    option(
        "materialized-table.refresh-mode",
        choice("full", "continuous"),
        None,
        "How it is refreshed.",
        by_key=True,
    ),
    option(
        "materialized-table.refresh-status",
        choice("initializing", "activated", "suspended"),
        None,
        "Whether it is refreshed by the clock.",
        by_key=True,
    ),
    option(
        "materialized-table.refresh-handler-description",
        text,
        None,
        "Who refreshes it.",
        by_key=True,
    ),
    option(
        "materialized-table.refresh-handler-bytes",
        text,
        None,
        "State of who refreshes it, of another engine.",
        by_key=True,
    ),
    option(
        "partition.fields.<column>.date-formatter",
        text,
        None,
        "Pattern of the time in a partition column of a materialized table, such as "
        "`yyyy-MM-dd`; a refresh by the clock then writes the newest partition alone.",
        by_key=True,
    ),
)
