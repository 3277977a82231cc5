# SPDX-License-Identifier: Apache-2.0
"""Boards as a daemon would fill them in an hour: many tables, some parked, errors, a reload."""

import math

from ingest.config.choices import ChangeKind
from ingest.observe.metrics.layout_figures import TableLayout
from ingest.observe.metrics.telemetry import Metrics
from ingest.observe.status.status_board import StatusBoard
from ingest.pipeline.batch_report import BatchReport
from ingest.schema.routing import Outcome, Verdict
from ingest.state.request_files import Answer
from storage.clock import ManualClock

__all__ = ["START_MS", "busy_board", "fresh_board"]

START_MS = 1_795_000_000_000
_WORDS = [
    "orders",
    "order_lines",
    "customers",
    "payments",
    "shipments",
    "stock_moves",
    "invoices",
    "refunds",
    "products",
    "prices",
    "carts",
    "sessions",
    "coupons",
    "suppliers",
    "returns",
    "ledger",
    "accounts",
    "transfers",
]


def table_names(count):
    """Names of `count` tables in a few databases."""
    databases = ("shop", "billing", "warehouse", "crm")
    names = []
    for number in range(count):
        word = _WORDS[number % len(_WORDS)]
        tail = "" if number < len(_WORDS) else f"_{number // len(_WORDS):02d}"
        names.append(f"{databases[number % len(databases)]}.{word}{tail}")
    return names


def fresh_board(clock=None):
    """A daemon that has just begun."""
    clock = clock or ManualClock(START_MS)
    board, metrics = StatusBoard("shop", clock), Metrics(clock, process=False)
    return board, metrics, clock


def busy_board(tables=40, *, parked=2, errors=True, minutes=60):
    """A daemon after an hour of work.

    Returns:
        Board, metrics, clock.
    """
    board, metrics, clock = fresh_board()
    names = table_names(tables)
    for condition in ("configuration", "owner", "session", "source"):
        board.set_condition(condition, ok=True)
    board.set_fact("warehouse", "s3://lake/warehouse")
    board.set_fact("spark", "4.3.0")
    board.set_settings(SETTINGS, 10.0)
    board.set_state("running")
    board.set_table_states({name: {"state": "running"} for name in names})
    offset = 1_000_000
    ends = dict.fromkeys(range(6), offset)
    metrics.record_committed(
        {"shop.public." + w: {str(p): offset for p in ends} for w in _WORDS[:5]}
    )
    for second in range(0, minutes * 60, 10):
        swing = 1 + 0.6 * math.sin(second / 500) + (2.5 if 2000 < second < 2300 else 0)
        clock.advance(9_000)
        for partition in ends:
            ends[partition] += int(900 * swing) + partition
        metrics.record_watermarks(
            {
                ("shop.public." + w, p): (0, ends[p] + int(120 * swing * (p + 1)))
                for w in _WORDS[:5]
                for p in range(6)
            }
        )
        lags = metrics.lag()
        board.beat()
        board.sample(sum(lags.values()) if lags else None, metrics.freshness_s())
        clock.advance(1_000)
        board.batch_started(second // 10)
        report = _report(second, swing, names, ends, clock.now_ms())
        metrics.record(report)
        board.record(report)
    for number, name in enumerate(names):
        metrics.record_layout(name, _layout(number))
    reasons = (
        "snapshot-81 names data-7c1d5e-0.parquet, which is not there: restore it",
        "3.1 % of its records in a batch were bad, the limit is 1 %",
    )
    now = "2026-11-18 09:42:11Z"
    board.set_table_states(
        {
            names[(3 + 4 * n) % tables]: {
                "state": "parked",
                "reason": reasons[n % 2],
                "by": "stream",
                "parked_at": now,
            }
            for n in range(parked)
        }
    )
    if tables > 12:
        board.set_table_states({names[9]: {"state": "behind"}})
    for answer in _answers(clock.now_ms()):
        board.answered(answer)
    if errors:
        board.failed(RuntimeError("the store does not answer (host = lake.s3.example)"))
        clock.advance(4_000)
        last = _report(minutes * 60, 1.0, names, ends, clock.now_ms())
        board.record(last)
        metrics.record(last)
    board.batch_started(minutes * 6 + 1)
    clock.advance(2_300)
    return board, metrics, clock


SETTINGS = (
    ("pipeline.name", "shop", "file"),
    ("pipeline.trigger.interval", "10s", "flag"),
    ("source.bootstrap.servers", "kafka-1:9092,kafka-2:9092", "environment"),
    ("source.properties", "security.protocol=SASL_SSL, sasl.password=********", "file"),
    ("sink.warehouse", "s3://lake/warehouse", "file"),
    ("control.token", "********", "file"),
)


def _answers(now_ms):
    """Of requests of the last quarter of an hour."""
    refused = "these settings cannot change while the pipeline runs (keys = sink.warehouse)"
    hint = "restart the daemon, or revert the change; until then the old settings apply"
    said = (
        ("reload", "failed", refused, hint),
        ("reload", "done", "goes on with new settings: pipeline, tables", ""),
        ("resume", "done", "resumed shop.stock_moves; 8112 offsets are read again", ""),
    )
    for number, (kind, state, text, hint) in enumerate(said):
        at_ms = now_ms - 300_000 * (len(said) - number)
        yield Answer(id=f"r{number + 1}", kind=kind, state=state, text=text, hint=hint, at_ms=at_ms)


def _report(second, swing, names, ends, now_ms):
    batch = second // 10
    busy = [n for at, n in enumerate(names) if (at * 7 + batch) % (2 + at % 5) == 0][:60]
    rows = {
        n: {"insert": int(400 * swing / (1 + at % 7)) + 3, "update_after": 40}
        for at, n in enumerate(busy)
    }
    job = 1.1 * swing + (0.4 if batch % 9 == 0 else 0)
    schema = 0.8 if batch % 47 == 0 else 0.01
    bad = {names[1]: {"type": 2, "envelope": 1}, "": {"json": 1}} if batch % 23 == 0 else {}
    verdicts = ()
    if batch % 120 == 60:
        verdicts = (
            (
                names[0],
                Verdict(
                    kind=ChangeKind.ADD_COLUMN,
                    column="discount",
                    old="",
                    new="DECIMAL(10, 2)",
                    outcome=Outcome.APPLIED,
                ),
            ),
            (
                names[2],
                Verdict(
                    kind=ChangeKind.ALTER_COLUMN_TYPE,
                    column="zip",
                    old="STRING",
                    new="INT",
                    outcome=Outcome.REFUSED,
                    reason="a narrower type would lose values",
                ),
            ),
        )
    return BatchReport(
        batch_id=batch,
        identifier=batch + 1,
        outcome="committed",
        events=int(5400 * swing),
        bytes=10_000_000,
        rows_by_table=rows,
        snapshots=dict.fromkeys(busy, 4000 + batch),
        changelog_rows=dict.fromkeys(busy[::2], 77),
        compactions=dict.fromkeys(busy[::5], 1),
        sorted_runs={n: 2 + len(n) % 4 for n in busy},
        bad_by_table=bad,
        bad_by_topic={"shop.public.orders": {"json": 1}} if bad else {},
        source_ts_ms={
            n: (now_ms - 9000 - 300 * at, now_ms - int(1500 * swing) - 70 * at)
            for at, n in enumerate(busy)
        },
        end_offsets={
            "shop.public." + w: {str(p): end for p, end in ends.items()} for w in _WORDS[:5]
        },
        duration_s=job + schema + 0.35,
        schema_verdicts=verdicts,
        started_ms=now_ms - 2000,
        phases={
            "plan": 0.09,
            "job": job,
            "schema": schema,
            "commit": 0.21 * swing,
            "task_read": 0.6 * swing,
            "task_decode": 1.7 * swing,
            "task_write": 0.9 * swing,
            "task_merge": 0.2,
        },
    )


def _layout(number):
    size = (37 * (number + 3)) % 900 + 4
    levels = (
        (0, 3 + number % 4, 40_000 * (number % 9 + 1)),
        (4, 1 + number % 2, 900_000 * (number % 5)),
        (5, size // 9 + 1, size * 9_500_000),
    )
    return TableLayout(
        files=sum(files for _, files, _ in levels),
        bytes=sum(held for _, _, held in levels),
        records=size * 70_000,
        buckets=4 + number % 13,
        partitions=1,
        runs=(2 + number % 4,),
        level0=(levels[0][1],),
        levels=levels,
        debt_bytes=sum(held for _, _, held in levels[:2]),
        snapshot_id=4300,
        compaction_trigger=5,
        stop_trigger=8,
        schema_id=0,
        snapshots=30,
        committed_ms=START_MS,
    )
