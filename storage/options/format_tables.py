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
    refused,
    row,
    separator,
    text,
)

TABLE_TYPES = (
    "table",
    "format-table",
    "materialized-table",
    "object-table",
    "lance-table",
    "iceberg-table",
)

TYPED: tuple[Option, ...] = (
    row(
        "type",
        choice(*TABLE_TYPES),
        "table",
        "Kind of table: a table of snapshots, a directory of files (`format-table`), an index of "
        "the objects of a directory (`object-table`), or the result of a query "
        "(`materialized-table`).",
        mutable=False,
        implemented=("table", "materialized-table", "object-table"),  # format tables: elsewhere
    ),
    row(
        "format-table.partition-path-only-value",
        boolean,
        "false",
        "Partition directories of a format table are named by the value alone.",
        mutable=False,
    ),
    row(
        "format-table.file.compression",
        text,
        None,
        "Compression of the files of a format table, where `file.compression` is not set; "
        "otherwise snappy for Parquet, zstd for ORC, none for text.",
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
    row(
        "csv.field-delimiter",
        character,
        ",",
        "Character between the fields of a CSV line.",
        aliases=("field-delimiter", "seq", "delimiter"),
    ),
    row(
        "csv.line-delimiter",
        separator,
        r"\n",
        "Text at the end of a CSV line; `\\n` or `\\r\\n` to be read.",
        aliases=("lineSep",),
    ),
    row(
        "csv.quote-character",
        character,
        '"',
        "Stands around fields with delimiters.",
        aliases=("quote",),
    ),
    row(
        "csv.escape-character",
        character,
        "\\",
        "Stands before quotes inside of quotes.",
        aliases=("escape",),
    ),
    row(
        "csv.include-header",
        boolean,
        "false",
        "Whether the first line of a CSV file names the columns.",
        aliases=("header",),
    ),
    row(
        "csv.null-literal",
        separator,
        "",
        "Text of a null in CSV.",
        aliases=("nullvalue",),
    ),
    row(
        "csv.mode",
        choice("permissive", "dropmalformed", "failfast"),
        "permissive",
        "A CSV field that is no value of its column: null, the row left out, or an error.",
        aliases=("mode",),
    ),
    row(
        "json.ignore-parse-errors",
        boolean,
        "false",
        "JSON lines that cannot be parsed are left out, and values that do not fit are null.",
    ),
    row(
        "json.line-delimiter",
        separator,
        r"\n",
        "Text at the end of a JSON line.",
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
    row(
        "text.line-delimiter",
        separator,
        r"\n",
        "Text at the end of a line of a text file. Also `lineSep`.",
    ),
    row(
        "object-location",
        text,
        None,
        "Directory whose objects an object table lists.",
        mutable=False,
    ),
    row(
        "materialized-table.definition-query",
        text,
        None,
        "Query whose result a materialized table holds.",
    ),
    row(
        "materialized-table.interval-freshness",
        text,
        None,
        "How old the rows of a materialized table may be, in the unit of the next option.",
    ),
    row(
        "materialized-table.interval-freshness.time-unit",
        choice("second", "minute", "hour", "day"),
        None,
        "Unit of the freshness.",
    ),
    row(
        "materialized-table.logical-refresh-mode",
        choice("automatic", "full", "continuous"),
        None,
        "How the table was declared to be refreshed.",
    ),
    row(
        "materialized-table.refresh-mode",
        choice("full", "continuous"),
        None,
        "How it is refreshed.",
    ),
    row(
        "materialized-table.refresh-status",
        choice("initializing", "activated", "suspended"),
        None,
        "Whether it is refreshed by the clock.",
    ),
    row(
        "materialized-table.refresh-handler-description",
        text,
        None,
        "Who refreshes it.",
    ),
    row(
        "materialized-table.refresh-handler-bytes",
        text,
        None,
        "State of who refreshes it, of another engine.",
    ),
    row(
        "partition.fields.<column>.date-formatter",
        text,
        None,
        "Pattern of the time in a partition column of a materialized table, such as "
        "`yyyy-MM-dd`; a refresh by the clock then writes the newest partition alone.",
    ),
)
