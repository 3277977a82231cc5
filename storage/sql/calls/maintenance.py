# SPDX-License-Identifier: Apache-2.0
"""Procedures that compact, expire, repair and rewrite tables."""

import concurrent.futures
import re
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from storage.errors import CommitConflictError, UnsupportedFeatureError
from storage.options.values import duration_ms
from storage.sql.calls.declaration import Argument, Call, Procedure, result_rows, succeeded
from storage.sql.calls.tables import (
    OPTIONS,
    PARTITIONS,
    TABLE,
    WHERE,
    called_table,
    chosen_partitions,
    parse_partitions,
    table_node,
)
from storage.sql.errors import refuse
from storage.table.compaction.compact_plan import CompactRequest
from storage.table.compaction.compact_table import CompactReport, compact_table
from storage.table.compaction.rescale import rescale
from storage.table.compaction.rewrite_index import rewrite_file_index
from storage.table.compaction.sort_codes import SortOrder
from storage.table.compaction.sort_table import sort_table
from storage.table.inspect.analyze import analyze
from storage.table.table import FileStoreTable

__all__ = ["PROCEDURES"]

_IDLE = Argument(
    name="partition_idle_time",
    about="only partitions that got no file for this long, such as `1 d`",
)
_STRATEGY = Argument(
    name="compact_strategy",
    about="`full`: everything into the last level; `minor`: what is due",
    default="full",
)
_RETAIN = (
    Argument(name="retain_max", type="integer", about="older ones than this many newest ones go"),
    Argument(name="retain_min", type="integer", about="this many newest ones stay"),
    Argument(name="older_than", type="time", about="ones from before this time go"),
    Argument(name="max_deletes", type="integer", about="most that go in this call"),
)


def _compact(call: Call) -> pa.Table:
    table = called_table(call)
    partitions = chosen_partitions(call, table)
    if partitions is None:
        return succeeded()
    request = CompactRequest(
        full=_full(call), partitions=partitions, idle_ms=_duration(call, "partition_idle_time")
    )
    order = (call["order_strategy"] or "none").lower()
    if order == "none":
        if call["order_by"]:
            refuse("order_by needs order_strategy", call.node, hint="order, zorder or hilbert")
        _require_done(_compacted(table, request), table)
        return succeeded()
    if order not in {one.value for one in SortOrder}:
        refuse("no such order", call.node, hint="order, zorder, hilbert or none", value=order)
    if request.idle_ms is not None:
        refuse("partition_idle_time cannot be used with order compact", call.node)
    columns = [name.strip() for name in (call["order_by"] or "").split(",") if name.strip()]
    if not columns:
        refuse("order_strategy needs order_by", call.node, hint="order_by => 'a,b'")
    _require_done(sort_table(table, columns, SortOrder(order), request), table)
    return succeeded()


def _compacted(table: FileStoreTable, request: CompactRequest) -> CompactReport:
    with concurrent.futures.ThreadPoolExecutor(1) as executor:
        return compact_table(table, request, executor)


def _require_done(report: CompactReport, table: FileStoreTable) -> None:
    if report.failures:
        raise report.failures[0].error
    if report.lost:
        raise CommitConflictError(
            "some buckets lost every race against other writers",
            hint="call it again",
            table=table.layout.root,
            buckets=report.lost,
        )


def _full(call: Call) -> bool:
    strategy = (call["compact_strategy"] or "full").lower()
    if strategy not in ("full", "minor"):
        refuse("no such strategy", call.node, hint="full or minor", value=strategy)
    return strategy == "full"


def _duration(call: Call, name: str) -> int | None:
    text = call[name]
    if text is None:
        return None
    try:
        return duration_ms(text)
    except ValueError as error:
        refuse(f"{name} is a time span", call.node, hint="such as 1 d or 30 min", detail=str(error))


def _compact_database(call: Call) -> pa.Table:
    names, outcomes = [], []
    for name in _chosen_tables(call):
        try:
            table = called_table(call, name)
            request = CompactRequest(
                full=_full(call), idle_ms=_duration(call, "partition_idle_time")
            )
            _require_done(_compacted(table, request), table)
            outcome = "compacted"
        except UnsupportedFeatureError as error:
            outcome = f"skipped: {error.message}"
        names.append(name)
        outcomes.append(outcome)
    return result_rows(table=names, result=outcomes)


def _chosen_tables(call: Call) -> Iterator[str]:
    patterns = {}
    for name, default in (
        ("including_databases", ".*"),
        ("including_tables", ".*"),
        ("excluding_tables", ""),
    ):
        patterns[name] = _pattern(call, name, default)
    catalog = call.session.catalog
    for database in catalog.list_databases():
        if not patterns["including_databases"].fullmatch(database):
            continue
        for table in catalog.list_tables(database):
            # Flink matches the name of the table, Spark `database.table`
            names = (table, f"{database}.{table}")
            if not any(map(patterns["including_tables"].fullmatch, names)):
                continue
            if call["excluding_tables"] and any(map(patterns["excluding_tables"].fullmatch, names)):
                continue
            yield f"{database}.{table}"


def _pattern(call: Call, name: str, default: str) -> re.Pattern[str]:
    try:
        return re.compile(call[name] or default)
    except re.error as error:
        refuse(f"{name} is no regular expression", call.node, detail=str(error))


def _expire_snapshots(call: Call) -> pa.Table:
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


def _expire_changelogs(call: Call) -> pa.Table:
    table = called_table(call)
    age = _age(call, table)
    options = {
        "changelog.num-retained.max": call["retain_max"],
        "changelog.num-retained.min": call["retain_min"],
        "changelog.time-retained": None if age is None else f"{age} ms",
        "snapshot.expire.limit": call["max_deletes"],
    }
    given = {key: str(value) for key, value in options.items() if value is not None}
    count = table.with_options(given).expire_changelogs(delete_all=bool(call["delete_all"]))
    return result_rows(deleted_changelogs_count=[count])


def _expire_partitions(call: Call) -> pa.Table:
    options = {
        "partition.expiration-time": call["expiration_time"],
        "partition.timestamp-formatter": call["timestamp_formatter"],
        "partition.timestamp-pattern": call["timestamp_pattern"],
        "partition.expiration-strategy": call["expire_strategy"],
        "partition.expiration-max-num": call["max_expires"],
    }
    given = {key: str(value) for key, value in options.items() if value is not None}
    table = called_table(call).with_options(given)
    return result_rows(expired_partitions=list(table.expire_partitions()))


def _drop_partition(call: Call) -> pa.Table:
    called_table(call).drop_partitions(parse_partitions(call, call.text("partitions")))
    return succeeded()


def _mark_partition_done(call: Call) -> pa.Table:
    table: Any = called_table(call)
    if not hasattr(table, "mark_partitions_done"):
        refuse("partitions are not marked by this version", call.node)
    table.mark_partitions_done(parse_partitions(call, call.text("partitions")))
    return succeeded()


def _rewrite_file_index(call: Call) -> pa.Table:
    table = called_table(call)
    partitions = chosen_partitions(call, table)
    for one in () if partitions is None else partitions or (None,):
        rewrite_file_index(table, one)
    return succeeded()


def _remove_orphan_files(call: Call) -> pa.Table:
    name = call.text("table")
    names = [name]
    if name.endswith(".*"):
        database = name.removesuffix(".*")
        names = [f"{database}.{one}" for one in call.session.catalog.list_tables(database)]
    older = call["older_than"]
    count = size = 0
    for one in names:
        found = called_table(call, one).remove_orphan_files(
            older_than_ms=older, dry_run=bool(call["dry_run"])
        )
        count, size = count + len(found.paths), size + found.size
    return result_rows(deletedFileCount=[count], deletedFileTotalLenInBytes=[size])


def _rescale(call: Call) -> pa.Table:
    table = called_table(call)
    partitions = chosen_partitions(call, table)
    if partitions is not None:
        buckets = call["bucket_num"]
        rescale(table, table.options.bucket if buckets is None else buckets, partitions)
    return succeeded()


def _repair(call: Call) -> pa.Table:
    catalog = call.session.catalog
    wanted = call["database_or_table"]
    if wanted is None:
        catalog.repair_catalog()
    for name in (wanted or "").split(","):
        if "." in name:
            catalog.repair_table(name.strip())
        elif name.strip():
            catalog.repair_database(name.strip())
    return succeeded()


def _refresh_object_table(call: Call) -> pa.Table:
    found = call.session.resolve(table_node(call, call.text("table")))
    if not hasattr(found, "refresh"):
        refuse("this is no object table", call.node, table=call.text("table"))
    return result_rows(result=[found.refresh()])


def _analyze(call: Call) -> pa.Table:
    columns = call["columns"]
    names: tuple[str, ...] | None = ()
    if columns is not None:
        names = None if columns == "*" else tuple(one.strip() for one in columns.split(","))
    analyze(called_table(call), names)
    return succeeded()


def _merge_into(call: Call) -> pa.Table:
    """Flink's procedure as the statement that it stands for."""
    target = call.text("target_table")
    alias = call["target_alias"] or target.rpartition(".")[2]
    source = call["source_table"]
    if call["source_sqls"]:
        refuse(
            "source_sqls are not run", call.node, hint="create a view, and name it as source_table"
        )
    if source is None:
        refuse("merge_into needs source_table", call.node)
    text = f"MERGE INTO {target} AS {alias} USING {source} ON {call.text('merge_condition')}"
    for prefix, when in (
        ("matched", "WHEN MATCHED"),
        ("not_matched_by_source", "WHEN NOT MATCHED BY SOURCE"),
    ):
        condition, setting = call[f"{prefix}_upsert_condition"], call[f"{prefix}_upsert_setting"]
        removed = call[f"{prefix}_delete_condition"]
        if setting is not None:
            text += f" {when}{_and(condition)} THEN UPDATE SET {setting}"
        if removed is not None:
            text += f" {when}{_and(removed)} THEN DELETE"
    values = call["not_matched_insert_values"]
    if values is not None:
        given = "*" if values.strip() == "*" else f"VALUES ({values})"
        text += f" WHEN NOT MATCHED{_and(call['not_matched_insert_condition'])} THEN INSERT {given}"
    (result,) = call.session.execute(text)
    return result_rows(result=[f"{result.affected} rows"])


def _and(condition: str | None) -> str:
    return "" if condition is None or condition.upper() == "TRUE" else f" AND ({condition})"


def _by_delete_all(values: Sequence[Any]) -> tuple[str, ...] | None:
    flagged = len(values) == 2 and isinstance(values[1], bool)
    return ("table", "delete_all") if flagged else None


PROCEDURES = (
    Procedure(
        name="compact",
        about="Compacts a table: merges files, and sorts or clusters rows where an order is given.",
        arguments=(
            TABLE,
            PARTITIONS,
            Argument(
                name="order_strategy",
                about="`order`, `zorder`, `hilbert` or `none`",
                default="none",
            ),
            Argument(name="order_by", about="columns of the order: `a,b`"),
            OPTIONS,
            WHERE,
            _IDLE,
            _STRATEGY,
        ),
        run=_compact,
        by_count={3: ("table", "order_strategy", "order_by")},
    ),
    Procedure(
        name="compact_database",
        about="Compacts the tables of databases; tables that cannot be compacted are skipped.",
        arguments=(
            Argument(
                name="including_databases", about="databases, a regular expression", default=".*"
            ),
            Argument(name="mode", about="`divided` or `combined`; has no effect here"),
            Argument(
                name="including_tables",
                about="tables, a regular expression of `table` or `database.table`",
                default=".*",
            ),
            Argument(name="excluding_tables", about="tables left out, likewise"),
            Argument(
                name="options",
                type="options",
                about="options of the tables for this call alone",
                aliases=("table_options",),
            ),
            _IDLE,
            _STRATEGY,
        ),
        run=_compact_database,
    ),
    Procedure(
        name="expire_snapshots",
        about="Removes old snapshots, and the files that only they need.",
        arguments=(TABLE, *_RETAIN, OPTIONS),
        run=_expire_snapshots,
    ),
    Procedure(
        name="expire_changelogs",
        about="Removes old changelogs that outlived their snapshots.",
        arguments=(
            TABLE,
            *_RETAIN,
            Argument(
                name="delete_all", type="boolean", about="removes all of them", default="false"
            ),
        ),
        run=_expire_changelogs,
        by_place=_by_delete_all,
    ),
    Procedure(
        name="expire_partitions",
        about="Drops partitions that are too old.",
        arguments=(
            TABLE,
            Argument(name="expiration_time", about="age at which a partition goes: `7 d`"),
            Argument(name="timestamp_formatter", about="`yyyy-MM-dd`"),
            Argument(name="timestamp_pattern", about="`$dt`"),
            Argument(
                name="expire_strategy",
                about="`values-time` or `update-time`",
                default="values-time",
            ),
            Argument(name="max_expires", type="integer", about="most partitions in one call"),
            OPTIONS,
        ),
        run=_expire_partitions,
    ),
    Procedure(
        name="drop_partition",
        about="Drops partitions.",
        arguments=(TABLE, Argument(name="partitions", about=PARTITIONS.about, required=True)),
        run=_drop_partition,
    ),
    Procedure(
        name="mark_partition_done",
        about="Marks partitions as complete, by the actions that the table's options name.",
        arguments=(TABLE, Argument(name="partitions", about=PARTITIONS.about, required=True)),
        run=_mark_partition_done,
    ),
    Procedure(
        name="rewrite_file_index",
        about="Makes the file indexes that the options ask for and files lack.",
        arguments=(TABLE, PARTITIONS, WHERE),
        run=_rewrite_file_index,
    ),
    Procedure(
        name="remove_orphan_files",
        about="Removes files that nothing refers to.",
        arguments=(
            Argument(name="table", about="the table, or `database.*`", required=True),
            Argument(name="older_than", type="time", about="only older ones", default="1 day ago"),
            Argument(name="dry_run", type="boolean", about="only counts", default="false"),
            Argument(name="parallelism", type="integer", about="has no effect here"),
            Argument(name="mode", about="`local` or `distributed`; has no effect here"),
        ),
        run=_remove_orphan_files,
    ),
    Procedure(
        name="rescale",
        about="Rewrites partitions with another number of buckets.",
        arguments=(
            TABLE,
            Argument(name="bucket_num", type="integer", about="number of buckets"),
            PARTITIONS,
            WHERE,
        ),
        run=_rescale,
    ),
    Procedure(
        name="repair",
        about="Enters tables of the file system that the catalog does not know.",
        arguments=(
            Argument(
                name="database_or_table",
                about="databases or tables: `db1,db2.t`",
                default="the whole catalog",
                aliases=("table",),
            ),
        ),
        run=_repair,
    ),
    Procedure(
        name="refresh_object_table",
        about="Lists the objects of an object table again; returns their number.",
        arguments=(TABLE,),
        run=_refresh_object_table,
    ),
    Procedure(
        name="analyze",
        about="Computes statistics of a table, as ANALYZE TABLE does.",
        arguments=(
            TABLE,
            Argument(name="columns", about="columns `a,b`, or `*` for all", default="none"),
        ),
        run=_analyze,
    ),
    Procedure(
        name="merge_into",
        about="MERGE INTO, written as a procedure for engines without the statement.",
        arguments=(
            Argument(name="target_table", about="the table", required=True),
            Argument(name="target_alias", about="its name in the conditions"),
            Argument(name="source_sqls", about="is refused"),
            Argument(name="source_table", about="the source"),
            Argument(name="merge_condition", about="which rows belong together", required=True),
            Argument(name="matched_upsert_condition", about="rows to update"),
            Argument(name="matched_upsert_setting", about="`a = S.a, b = 1`, or `*`"),
            Argument(name="not_matched_insert_condition", about="rows to insert"),
            Argument(name="not_matched_insert_values", about="`S.a, 1`, or `*`"),
            Argument(name="matched_delete_condition", about="rows to delete"),
            Argument(name="not_matched_by_source_upsert_condition", about="other rows to update"),
            Argument(name="not_matched_by_source_upsert_setting", about="`a = 1`"),
            Argument(name="not_matched_by_source_delete_condition", about="other rows to delete"),
        ),
        run=_merge_into,
    ),
)
