# SPDX-License-Identifier: Apache-2.0
"""Procedures that compact, expire, repair and rewrite tables."""

import concurrent.futures
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from storage.errors import CommitConflictError, UnsupportedFeatureError
from storage.sql.calls.declaration import (
    OPTIONS,
    PARTITIONS,
    TABLE,
    WHERE,
    Argument,
    Call,
    called_table,
    chosen_partitions,
    parse_partitions,
    procedure,
    result_rows,
    table_node,
)
from storage.sql.errors import refuse
from storage.table.compaction import rescale as rescaling
from storage.table.compaction import rescale as rewrite_index
from storage.table.compaction.compact_table import CompactReport, CompactRequest, compact_table
from storage.table.compaction.sort_table import SortOrder, sort_table
from storage.table.inspect import analyze as statistics
from storage.table.table import FileStoreTable

_IDLE = Argument(
    "partition_idle_time",
    "only partitions that got no file for this long, such as `1 d`",
    type="duration",
)
_STRATEGY = Argument(
    "compact_strategy",
    "`full`: everything into the last level; `minor`: what is due",
    default="full",
)
_RETAIN = (
    Argument("retain_max", "older ones than this many newest ones go", type="integer"),
    Argument("retain_min", "this many newest ones stay", type="integer"),
    Argument("older_than", "ones from before this time go", type="time"),
    Argument("max_deletes", "most that go in this call", type="integer"),
)
_NAMED_PARTITIONS = Argument("partitions", PARTITIONS.about, required=True)


# -------------------------------------------------------------------------------- compaction


def _by_order(values: Sequence[Any]) -> tuple[str, ...] | None:
    return ("table", "order_strategy", "order_by") if len(values) == 3 else None


@procedure(
    TABLE,
    PARTITIONS,
    Argument("order_strategy", "`order`, `zorder`, `hilbert` or `none`", default="none"),
    Argument("order_by", "columns of the order: `a,b`"),
    OPTIONS,
    WHERE,
    _IDLE,
    _STRATEGY,
    by_place=_by_order,
)
def compact(call: Call) -> None:
    """Compacts a table: merges files, and sorts or clusters rows where an order is given."""
    table = called_table(call)
    partitions = chosen_partitions(call, table)
    if partitions is None:
        return
    request = CompactRequest(
        full=_full(call), partitions=partitions, idle_ms=call["partition_idle_time"]
    )
    order = (call["order_strategy"] or "none").lower()
    if order == "none":
        if call["order_by"]:
            refuse("order_by needs order_strategy", call.node, hint="order, zorder or hilbert")
        _require_done(_compacted(table, request), table)
        return
    if order not in {kind.value for kind in SortOrder}:
        refuse(
            "unknown order strategy", call.node, hint="order, zorder, hilbert or none", value=order
        )
    if request.idle_ms is not None:
        refuse("partition_idle_time cannot be used with order compact", call.node)
    columns = [name.strip() for name in (call["order_by"] or "").split(",") if name.strip()]
    if not columns:
        refuse("order_strategy needs order_by", call.node, hint="order_by => 'a,b'")
    _require_done(sort_table(table, columns, SortOrder(order), request), table)


def _compacted(table: FileStoreTable, request: CompactRequest) -> CompactReport:
    with concurrent.futures.ThreadPoolExecutor(1) as executor:
        return compact_table(table, request, executor)


def _require_done(report: CompactReport, table: FileStoreTable) -> None:
    if report.failures:
        raise report.failures[0].error
    if report.lost:
        raise CommitConflictError(
            "some buckets not compacted: other writers won every attempt",
            hint="call the procedure again",
            table=table.layout.root,
            buckets=report.lost,
        )


def _full(call: Call) -> bool:
    strategy = (call["compact_strategy"] or "full").lower()
    if strategy not in ("full", "minor"):
        refuse("no such strategy", call.node, hint="full or minor", value=strategy)
    return strategy == "full"


@procedure(
    Argument("including_databases", "databases", type="pattern", default=".*"),
    Argument("mode", "`divided` or `combined`; has no effect here"),
    Argument(
        "including_tables", "tables, as `table` or `database.table`", type="pattern", default=".*"
    ),
    Argument("excluding_tables", "tables left out, likewise", type="pattern"),
    Argument(
        "options",
        "options of the tables for this call alone",
        type="options",
        aliases=("table_options",),
    ),
    _IDLE,
    _STRATEGY,
)
def compact_database(call: Call) -> pa.Table:
    """Compacts the tables of databases; tables that cannot be compacted are skipped."""
    names, outcomes = [], []
    request = CompactRequest(full=_full(call), idle_ms=call["partition_idle_time"])
    for name in _chosen_tables(call):
        try:
            table = called_table(call, name)
            _require_done(_compacted(table, request), table)
            outcome = "compacted"
        except UnsupportedFeatureError as error:
            outcome = f"skipped: {error.message}"
        names.append(name)
        outcomes.append(outcome)
    return result_rows(table=names, result=outcomes)


def _chosen_tables(call: Call) -> Iterator[str]:
    databases = call["including_databases"]
    including, excluding = call["including_tables"], call["excluding_tables"]
    catalog = call.session.catalog
    for database in catalog.list_databases():
        if databases is not None and not databases.fullmatch(database):
            continue
        for table in catalog.list_tables(database):
            # Flink matches the name of the table, Spark `database.table`
            names = (table, f"{database}.{table}")
            if including is not None and not any(map(including.fullmatch, names)):
                continue
            if excluding is None or not any(map(excluding.fullmatch, names)):
                yield f"{database}.{table}"


# ------------------------------------------------------------------------------------ expiry


@procedure(TABLE, *_RETAIN, OPTIONS)
def expire_snapshots(call: Call) -> pa.Table:
    """Removes old snapshots, and the files that only they need."""
    table = called_table(call)
    count = table.expire_snapshots(
        retain_min=call["retain_min"],
        retain_max=call["retain_max"],
        time_retained_ms=_age(call, table),
        limit=call["max_deletes"],
    )
    return result_rows(deleted_snapshots_count=[count])


def _age(call: Call, table: FileStoreTable) -> int | None:
    older = call["older_than"]
    return None if older is None else max(0, table.clock.now_ms() - older)


def _by_delete_all(values: Sequence[Any]) -> tuple[str, ...] | None:
    flagged = len(values) == 2 and isinstance(values[1], bool)
    return ("table", "delete_all") if flagged else None


@procedure(
    TABLE,
    *_RETAIN,
    Argument("delete_all", "removes all of them", type="boolean", default="false"),
    by_place=_by_delete_all,
)
def expire_changelogs(call: Call) -> pa.Table:
    """Removes old changelogs that outlived their snapshots."""
    table = called_table(call)
    age = _age(call, table)
    table = _with_options(
        table,
        {
            "changelog.num-retained.max": call["retain_max"],
            "changelog.num-retained.min": call["retain_min"],
            "changelog.time-retained": None if age is None else f"{age} ms",
            "snapshot.expire.limit": call["max_deletes"],
        },
    )
    count = table.expire_changelogs(delete_all=bool(call["delete_all"]))
    return result_rows(deleted_changelogs_count=[count])


def _with_options(table: FileStoreTable, options: dict[str, Any]) -> FileStoreTable:
    """The table with the options that are set."""
    return table.with_options(
        {key: str(value) for key, value in options.items() if value is not None}
    )


@procedure(
    TABLE,
    Argument("expiration_time", "age at which a partition goes: `7 d`"),
    Argument("timestamp_formatter", "`yyyy-MM-dd`"),
    Argument("timestamp_pattern", "`$dt`"),
    Argument("expire_strategy", "`values-time` or `update-time`", default="values-time"),
    Argument("max_expires", "most partitions in one call", type="integer"),
    OPTIONS,
)
def expire_partitions(call: Call) -> pa.Table:
    """Drops partitions that are too old."""
    table = _with_options(
        called_table(call),
        {
            "partition.expiration-time": call["expiration_time"],
            "partition.timestamp-formatter": call["timestamp_formatter"],
            "partition.timestamp-pattern": call["timestamp_pattern"],
            "partition.expiration-strategy": call["expire_strategy"],
            "partition.expiration-max-num": call["max_expires"],
        },
    )
    return result_rows(expired_partitions=list(table.expire_partitions()))


# ------------------------------------------------------------------------ partitions and files


@procedure(TABLE, _NAMED_PARTITIONS, repeated=True)
def drop_partition(call: Call) -> None:
    """Drops partitions."""
    called_table(call).drop_partitions(parse_partitions(call, call.text("partitions")))


@procedure(TABLE, _NAMED_PARTITIONS)
def mark_partition_done(call: Call) -> None:
    """Marks partitions as complete, by the actions that the table's options name."""
    called_table(call).mark_partitions_done(parse_partitions(call, call.text("partitions")))


@procedure(TABLE, PARTITIONS, WHERE)
def rewrite_file_index(call: Call) -> None:
    """Makes the file indexes that the options ask for and files lack."""
    table = called_table(call)
    partitions = chosen_partitions(call, table)
    for partition in () if partitions is None else partitions or (None,):
        rewrite_index.rewrite_file_index(table, partition)


@procedure(
    Argument("table", "the table, or `database.*`", required=True),
    Argument("older_than", "only older ones", type="time", default="1 day ago"),
    Argument("dry_run", "only counts", type="boolean", default="false"),
    Argument("parallelism", "has no effect here", type="integer"),
    Argument("mode", "`local` or `distributed`; has no effect here"),
)
def remove_orphan_files(call: Call) -> pa.Table:
    """Removes files that nothing refers to."""
    name = call.text("table")
    names = [name]
    if name.endswith(".*"):
        database = name.removesuffix(".*")
        names = [f"{database}.{table}" for table in call.session.catalog.list_tables(database)]
    count = size = 0
    for identifier in names:
        orphans = called_table(call, identifier).remove_orphan_files(
            older_than_ms=call["older_than"], dry_run=bool(call["dry_run"])
        )
        count, size = count + len(orphans.paths), size + orphans.size
    return result_rows(deletedFileCount=[count], deletedFileTotalLenInBytes=[size])


@procedure(TABLE, Argument("bucket_num", "number of buckets", type="integer"), PARTITIONS, WHERE)
def rescale(call: Call) -> None:
    """Rewrites partitions with another number of buckets."""
    table = called_table(call)
    partitions = chosen_partitions(call, table)
    if partitions is not None:
        buckets = call["bucket_num"]
        rescaling.rescale(table, table.options.bucket if buckets is None else buckets, partitions)


@procedure(
    Argument(
        "database_or_table",
        "databases or tables: `db1,db2.t`",
        default="the whole catalog",
        aliases=("table",),
    )
)
def repair(call: Call) -> None:
    """Enters tables of the file system that the catalog does not know."""
    catalog = call.session.catalog
    target = call["database_or_table"]
    if target is None:
        catalog.repair_catalog()
    for name in (target or "").split(","):
        if "." in name:
            catalog.repair_table(name.strip())
        elif name.strip():
            catalog.repair_database(name.strip())


@procedure(TABLE)
def refresh_object_table(call: Call) -> pa.Table:
    """Lists the objects of an object table again; gives their number."""
    table = call.session.resolve(table_node(call, call.text("table")))
    if not hasattr(table, "refresh"):
        refuse("not an object table", call.node, table=call.text("table"))
    return result_rows(result=[table.refresh()])


@procedure(TABLE, Argument("columns", "columns `a,b`, or `*` for all", default="none"))
def analyze(call: Call) -> None:
    """Computes statistics of a table, as ANALYZE TABLE does."""
    columns = call["columns"]
    names: tuple[str, ...] | None = ()
    if columns is not None:
        names = None if columns == "*" else tuple(name.strip() for name in columns.split(","))
    statistics.analyze(called_table(call), names)


@procedure(
    Argument("target_table", "the table", required=True),
    Argument("target_alias", "its name in the conditions"),
    Argument("source_sqls", "statements that run before, such as CREATE TEMPORARY VIEW"),
    Argument("source_table", "the source"),
    Argument("merge_condition", "which rows belong together", required=True),
    Argument("matched_upsert_condition", "rows to update"),
    Argument("matched_upsert_setting", "`a = S.a, b = 1`, or `*`"),
    Argument("not_matched_insert_condition", "rows to insert"),
    Argument("not_matched_insert_values", "`S.a, 1`, or `*`"),
    Argument("matched_delete_condition", "rows to delete"),
    Argument("not_matched_by_source_upsert_condition", "other rows to update"),
    Argument("not_matched_by_source_upsert_setting", "`a = 1`"),
    Argument("not_matched_by_source_delete_condition", "other rows to delete"),
)
def merge_into(call: Call) -> pa.Table:
    """MERGE INTO, written as a procedure for engines without the statement."""
    target = call.text("target_table")
    alias = call["target_alias"] or target.rpartition(".")[2]
    source = call["source_table"]
    if source is None:
        refuse("merge_into needs source_table", call.node)
    for _ in call.session.execute(call["source_sqls"] or ""):
        pass
    text = f"MERGE INTO {target} AS {alias} USING {source} ON {call.text('merge_condition')}"
    for prefix, when in (
        ("matched", "WHEN MATCHED"),
        ("not_matched_by_source", "WHEN NOT MATCHED BY SOURCE"),
    ):
        condition, setting = call[f"{prefix}_upsert_condition"], call[f"{prefix}_upsert_setting"]
        delete_condition = call[f"{prefix}_delete_condition"]
        if setting is not None:
            text += f" {when}{_and(condition)} THEN UPDATE SET {setting}"
        if delete_condition is not None:
            text += f" {when}{_and(delete_condition)} THEN DELETE"
    values = call["not_matched_insert_values"]
    if values is not None:
        row = "*" if values.strip() == "*" else f"VALUES ({values})"
        text += f" WHEN NOT MATCHED{_and(call['not_matched_insert_condition'])} THEN INSERT {row}"
    (result,) = call.session.execute(text)
    return result_rows(result=[f"{result.affected} rows"])


def _and(condition: str | None) -> str:
    return "" if condition is None or condition.upper() == "TRUE" else f" AND ({condition})"
