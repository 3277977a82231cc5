# SPDX-License-Identifier: Apache-2.0
"""`lakeward demo`: a shop's change stream through the real pipeline, step by step.

Generates Debezium events with a fixed seed, writes them as archived topics, ingests them with the
code that production runs (`files` source instead of Kafka), reads the tables back, compares every
row with what the source database holds, and shows what to inspect next.
"""

import dataclasses
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from ingest.daemon import daemon
from ingest.daemon.configuration import load_settings
from ingest.observe.metrics.layout_figures import levels_of
from ingest.observe.text_table import aligned, human_size, human_time, rows_of
from ingest.pipeline.batch_report import BatchReport
from ingest.tools.demo.shop import DATABASE, TABLES, DemoShop, Event, Mix, write_archive
from storage.catalog.catalog import FileSystemCatalog
from storage.clock import Clock, SystemClock
from storage.errors import InvalidRequestError
from storage.table.commit.live_files import live_entries
from storage.table.scan.predicate import parse_predicate
from storage.table.table import FileStoreTable

_SEED = 20_260_131
_MARK = ".lakeward-demo"
_BATCHES = 5
_SNAPSHOT_SHARE = 0.4
_SAMPLES = {
    "customers": ["id", "full_name", "phone", "vip", "credit_limit", "birth_date", "created_at"],
    "orders": ["id", "sku", "quantity", "amount", "status", "paid", "note", "shipped_at"],
}
_MIX = Mix(insert=0.25, update=0.65, delete=0.08, key_change=0.02)


@dataclasses.dataclass(frozen=True, slots=True)
class _Story:
    """The generated data: source database, the order that is followed, records in the archive."""

    shop: DemoShop
    order_id: int
    records: int


def run(directory: Path, *, events: int = 100_000) -> int:
    """Run all steps; returns the exit code.

    Args:
        directory: created from scratch; an existing one is replaced only if a demo created it.
        events: approximate number of change events.

    Raises:
        InvalidRequestError: the directory holds something else.
    """
    directory = directory.absolute()
    _clear(directory)
    _say(1, "Debezium events from a make-believe shop")
    story = _make_events(directory / "events", max(events, 1_000))
    _say(2, "One configuration file")
    config = _write_configuration(directory, story.records)
    _say(3, "The pipeline: files → Spark → Paimon tables")
    code = _ingest(config, SystemClock())
    if code != 0:
        return code
    catalog = FileSystemCatalog(str(directory / "warehouse"))
    _say(4, "Tables")
    correct = _show_tables(catalog, story.shop)
    _say(5, "Time travel: one order, before and after its change")
    _show_time_travel(catalog.table(f"{DATABASE}.orders"), story.order_id)
    _say(6, "Inside a table: snapshots and the merge tree's levels")
    _show_inside(catalog.table(f"{DATABASE}.orders"))
    _say(7, "Go on")
    _show_next(directory)
    return 0 if correct else 1


def _say(step: int, title: str) -> None:
    print(f"\n\x1b[1m{step}. {title}\x1b[0m" if _terminal() else f"\n{step}. {title}", flush=True)


def _clear(directory: Path) -> None:
    if directory.exists() and any(directory.iterdir()):
        if not (directory / _MARK).exists():
            raise InvalidRequestError(
                "the directory contains other files",
                hint="name an empty or new one with --dir",
                path=directory,
            )
        shutil.rmtree(directory)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / _MARK).write_text("made by `lakeward demo`, which replaces it\n", encoding="utf-8")


def _terminal() -> bool:
    return sys.stdout.isatty()


def _make_events(directory: Path, count: int) -> _Story:
    shop = DemoShop(_SEED)
    initial = int(count * _SNAPSHOT_SHARE)
    chosen: list[int] = []

    def story() -> Iterator[list[Event]]:
        yield from shop.insert("customers", initial // 8, snapshot=True)
        yield from shop.insert("products", initial // 40, snapshot=True)
        yield from shop.insert("orders", initial - initial // 8 - initial // 40, snapshot=True)
        yield from shop.stream(count - initial - 1, _MIX)
        # the last change is ours, so that the story has an order to follow
        chosen.append(_open_order(shop))
        yield shop.update_row("orders", chosen[0], status="delivered", paid=True, amount=129_99)

    counts = write_archive(directory, story())
    size = sum(path.stat().st_size for path in directory.rglob("*.jsonl"))
    rows = [
        [topic, number, len(shop.live_keys(_table_of(topic)))] for topic, number in counts.items()
    ]
    print(aligned(["topic", "records", "rows there should be"], sorted(rows), indent="  "))
    print(
        f"  {sum(counts.values()):,} records, {human_size(size)} of JSON with Debezium's schema "
        f"block, in {directory}\n"
        "  snapshot rows, inserts, updates, deletes with tombstones, primary key changes"
    )
    return _Story(shop, chosen[0], sum(counts.values()))


def _open_order(shop: DemoShop) -> int:
    """An old order that is not paid yet, so that paying and delivering it shows."""
    open_orders = [
        key
        for key, (_, _, _, _, _, status, paid, *_) in shop.rows("orders").items()
        if status == "placed" and not paid
    ]
    return int(min(open_orders, default=min(shop.live_keys("orders"))))


def _table_of(topic: str) -> str:
    return topic.rpartition(".")[2]


def _write_configuration(directory: Path, records: int) -> Path:
    path = directory / "demo.yaml"
    text = f"""\
source: {{ type: files, path: {directory / "events"} }}
sink: {{ warehouse: {directory / "warehouse"} }}
pipeline: {{ name: demo, trigger: {{ max.records: {int(records / _BATCHES * 1.05)} }} }}
metrics: {{ enabled: false }}
"""
    path.write_text(text, encoding="utf-8")
    print("".join(f"  {line}\n" for line in text.splitlines()), end="")
    return path


def _ingest(config: Path, clock: Clock) -> int:
    settings = load_settings(config, environ={})
    started = clock.monotonic_s()
    reports: list[BatchReport] = []
    print("  starting Spark …", flush=True)

    def on_batch(report: BatchReport) -> None:
        if report.events == 0:
            return
        reports.append(report)
        rate = report.events / max(report.duration_s, 1e-3)
        count = len(report.snapshots)
        tables = "1 table, " if count == 1 else f"{count} tables,"
        print(
            f"  batch {report.batch_id}: {report.events:>7,} records → {report.rows:>7,} rows in "
            f"{tables} {report.duration_s:5.1f} s, {rate:>9,.0f} records/s",
            flush=True,
        )

    code = daemon.run(settings, once=True, on_batch=on_batch)
    records = sum(report.events for report in reports)
    busy = sum(report.duration_s for report in reports)
    bad = sum(report.bad_records for report in reports)
    best = max((report.events / max(report.duration_s, 1e-3) for report in reports), default=0.0)
    total = clock.monotonic_s() - started
    if code == 0:
        print(
            f"  {records:,} records in {busy:.1f} s of batches, {total:.1f} s with Spark's start; "
            f"fastest batch {best:,.0f} records/s; {bad} records in quarantine"
        )
    return code


def _show_tables(catalog: FileSystemCatalog, shop: DemoShop) -> bool:
    rows: list[list[Any]] = []
    correct = True
    for name in TABLES:
        table = catalog.table(f"{DATABASE}.{name}")
        actual = table.to_arrow()
        same = _same_rows(actual, shop.expected(name))
        correct = correct and same
        rows.append([f"{DATABASE}.{name}", actual.num_rows, "yes" if same else "NO"])
    print(aligned(["table", "rows", "equals the source, value by value"], rows, indent="  "))
    for name, columns in _SAMPLES.items():
        table = catalog.table(f"{DATABASE}.{name}")
        sample = table.to_arrow(columns=columns).sort_by(columns[0]).slice(0, 3)
        print("\n" + aligned(sample.column_names, rows_of(sample), indent="  "))
    return correct


def _same_rows(rows: pa.Table, expected_rows: pa.Table) -> bool:
    key = expected_rows.column_names[0]
    if set(rows.column_names) != set(expected_rows.column_names):
        return False
    ordered = rows.select(expected_rows.column_names).sort_by(key).cast(expected_rows.schema)
    return bool(ordered.combine_chunks().equals(expected_rows))


def _show_time_travel(table: FileStoreTable, order_id: int) -> None:
    predicate = parse_predicate(f"id = {order_id}")
    columns = ["id", "status", "paid", "amount", "shipped_at"]
    rows: list[list[Any]] = []
    for number in sorted(table.snapshots.ids()):
        matches = rows_of(table.to_arrow(snapshot=number, columns=columns, filter=predicate))
        if matches and (not rows or rows[-1][2:] != matches[0]):
            time = human_time(table.snapshots.read(number).time_ms)
            rows.append([number, time, *matches[0]])
    print(aligned(["snapshot", "committed", *columns], rows, indent="  "))


def _show_inside(table: FileStoreTable) -> None:
    rows: list[Sequence[Any]] = []
    for number in sorted(table.snapshots.ids()):
        entry = table.snapshots.read(number)
        kind = entry.commit_kind.value
        rows.append(
            [entry.id, kind, human_time(entry.time_ms), entry.total_record_count, entry.commit_user]
        )
    print(aligned(["snapshot", "kind", "committed", "records", "user"], rows, indent="  "))
    latest = table.latest_snapshot()
    if latest is not None:
        files = levels_of(live_entries(table, latest))
        levels = [[*level[:3], human_size(level[3])] for level in files]
        print("\n" + aligned(["level", "files", "rows", "size"], levels, indent="  "))


def _show_next(directory: Path) -> None:
    warehouse = directory / "warehouse"
    command = "lakeward" if shutil.which("lakeward") else sys.argv[0]  # not on the PATH: as called
    print(
        f"""\
  Look around:
    {command} table show {warehouse} {DATABASE}.orders
    {command} table scan {warehouse} {DATABASE}.orders --filter "paid = false" --limit 5
    {command} table files {warehouse} {DATABASE}.customers

  With Kafka it is the same, three lines in shop.yaml and a warehouse of its own:
    source: {{ type: kafka, bootstrap.servers: localhost:9092, topics.pattern: 'shop\\..*' }}
    sink: {{ warehouse: lake }}
    pipeline: {{ name: shop }}

    {command} validate -c shop.yaml --check
    {command} run -c shop.yaml

  The events take most of the space; remove everything with: rm -r {directory}"""
    )
