# SPDX-License-Identifier: Apache-2.0
"""Partitions that are done: when, what is done then, and what after a restart."""

import dataclasses
import datetime
import http.server
import json
import pathlib
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from storage.clock import ManualClock
from storage.errors import (
    InvalidOptionError,
    InvalidRequestError,
    StorageUnavailableError,
    UnsupportedFeatureError,
)
from storage.format.metadata.snapshot import BATCH_COMMIT_IDENTIFIER
from storage.table.compaction.compact_table import CompactRequest, compact_table
from storage.table.core import CatalogEnvironment
from storage.table.inspect.system.registry import partitions_table
from storage.table.retention.expire_partitions import DoneTrigger
from storage.table.table import FileStoreTable
from storage.table.upkeep import TableUpkeep
from tests.inline_executor import InlineExecutor
from tests.table_kit import make_table, prepared, write

DAY = 86_400_000
MINUTE = 60_000
START = 19_700 * DAY
"""The start of the day 2023-12-09 in UTC [epoch ms]."""
TODAY = "20231209"
Server = tuple[str, list[Any], list[bytes]]
TIMED = {
    "bucket": "1",
    "partition.timestamp-formatter": "yyyyMMdd",
    "partition.timestamp-pattern": "$dt",
    "partition.time-interval": "1 d",
    "partition.idle-time-to-done": "15 min",
}


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def days(tmp_path: pathlib.Path, clock: ManualClock, **options: str) -> FileStoreTable:
    return make_table(
        tmp_path,
        columns=(("dt", "STRING"), ("k", "BIGINT")),
        keys=("dt", "k"),
        partitions=("dt",),
        options={**TIMED, **options},
        clock=clock,
    )


def success(table: FileStoreTable, day: str) -> dict[str, int] | None:
    path = pathlib.Path(table.layout.root) / f"dt={day}" / "_SUCCESS"
    return json.loads(path.read_text()) if path.exists() else None


def done_of(table: FileStoreTable) -> dict[str, bool]:
    return {row["partition"]: row["done"] for row in partitions_table(table).to_pylist()}


def test_a_partition_is_done_when_its_day_is_over_and_it_was_idle(tmp_path: pathlib.Path) -> None:
    clock = ManualClock(START + 10 * MINUTE)
    table, trigger = days(tmp_path, clock), DoneTrigger()
    write(table, 1, [("+I", "20231208", 1), ("+I", TODAY, 1)])
    assert trigger.run(table, now_ms=clock.now_ms()) == []
    clock.advance(15 * MINUTE)
    assert trigger.run(table, now_ms=clock.now_ms()) == []  # idle for just as long
    clock.advance(1)
    assert trigger.run(table, now_ms=clock.now_ms()) == ["dt=20231208"]
    now = clock.now_ms()
    assert success(table, "20231208") == {"creationTime": now, "modificationTime": now}
    assert done_of(table) == {"dt=20231208": True, f"dt={TODAY}": False}
    assert trigger.run(table, now_ms=START + DAY + 15 * MINUTE) == []
    assert trigger.run(table, now_ms=START + DAY + 15 * MINUTE + 1) == [f"dt={TODAY}"]


def test_rows_that_come_late_make_it_pending_again(tmp_path: pathlib.Path) -> None:
    clock = ManualClock(START)
    table, trigger = days(tmp_path, clock), DoneTrigger()
    write(table, 1, [("+I", "20231201", 1)])
    clock.advance(16 * MINUTE)
    assert trigger.run(table, now_ms=clock.now_ms()) == ["dt=20231201"]
    created = clock.now_ms()
    compact_table(table, CompactRequest(), InlineExecutor())
    clock.advance(50 * MINUTE)
    assert trigger.run(table, now_ms=clock.now_ms()) == []
    write(table, 2, [("+I", "20231201", 2)])
    assert trigger.run(table, now_ms=clock.now_ms()) == []
    clock.advance(16 * MINUTE)
    assert trigger.run(table, now_ms=clock.now_ms()) == ["dt=20231201"]
    assert success(table, "20231201") == {
        "creationTime": created,
        "modificationTime": clock.now_ms(),
    }


def test_a_new_process_goes_on(tmp_path: pathlib.Path) -> None:
    clock = ManualClock(START)
    table = days(tmp_path, clock)
    write(table, 1, [("+I", "20231201", 1), ("+I", "20231202", 1)])
    table.mark_partitions_done([{"dt": "20231201"}], now_ms=clock.now_ms() + 1)
    clock.advance(16 * MINUTE)
    assert DoneTrigger().run(table, now_ms=clock.now_ms()) == ["dt=20231202"]
    assert DoneTrigger().run(table, now_ms=clock.now_ms()) == []
    write(table, 2, [("+I", "20231202", 5)])
    for number in range(3, 15):
        write(table, number, [("+I", TODAY, number)])
    clock.advance(16 * MINUTE)
    assert DoneTrigger().run(table, now_ms=clock.now_ms()) == ["dt=20231202"]


def test_a_partition_whose_snapshots_are_gone_is_not_forgotten(tmp_path: pathlib.Path) -> None:
    clock = ManualClock(START)
    table = days(tmp_path, clock)
    write(table, 1, [("+I", "20231201", 1)])
    for number in range(2, 4):
        write(table, number, [("+I", TODAY, number)])
    table.expire_snapshots(retain_min=1, retain_max=1)
    clock.advance(16 * MINUTE)
    assert DoneTrigger().run(table, now_ms=clock.now_ms()) == ["dt=20231201"]


def test_values_that_are_no_time_are_never_done(tmp_path: pathlib.Path) -> None:
    clock = ManualClock(START)
    table = days(tmp_path, clock)
    write(table, 1, [("+I", "soon", 1)])
    assert DoneTrigger().run(table, now_ms=START + 100 * DAY) == []


def test_dropped_partitions_are_not_marked(tmp_path: pathlib.Path) -> None:
    table = days(tmp_path, ManualClock(START))
    write(table, 1, [("+I", "20231201", 1)])
    table.drop_partitions([{"dt": "20231201"}])
    assert DoneTrigger().run(table, now_ms=START + DAY) == []


def test_the_watermark_may_say_the_time(tmp_path: pathlib.Path) -> None:
    table = days(tmp_path, ManualClock(START), **{"partition.mark-done-action.mode": "watermark"})
    trigger = DoneTrigger()

    def commit(number: int, day: str, watermark: int) -> None:
        messages = prepared(table, [("+I", day, number)])
        table.new_commit("u").commit(messages, number, watermark=watermark)

    commit(1, "20231201", START - 8 * DAY)
    assert trigger.run(table, now_ms=START + 100 * DAY) == []
    commit(2, "20231202", START - 7 * DAY + 16 * MINUTE)
    assert trigger.run(table, now_ms=0) == ["dt=20231201"]


def test_a_batch_marks_what_it_wrote_when_it_ends(tmp_path: pathlib.Path) -> None:
    table = days(tmp_path, ManualClock(START), **{"partition.end-input-to-done": "true"})
    table.new_commit("b").commit(prepared(table, [("+I", TODAY, 1)]), BATCH_COMMIT_IDENTIFIER)
    assert success(table, TODAY) is not None


def test_upkeep_marks_and_expires_even_if_marking_fails(tmp_path: pathlib.Path) -> None:
    clock = ManualClock(START)
    table = days(tmp_path, clock, **{"partition.mark-done-action": "mark-event"})
    table = table.with_options({"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1"})
    for number in range(3):
        write(table, number, [("+I", "20231201", number)])
    with pytest.raises(UnsupportedFeatureError, match="without metastore"):
        TableUpkeep().run(table, now_ms=START + DAY)
    assert len(list(table.snapshots.ids())) == 1


class Environment(CatalogEnvironment):
    """That of a catalog which registers partitions."""

    registers_partitions = True

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[dict[str, str]]]] = []

    def alter(self, table: FileStoreTable, changes: object) -> FileStoreTable:
        raise NotImplementedError

    def published(self, table: object, snapshot: object) -> None:
        """Nothing to register."""

    def add_partitions(self, partitions: Sequence[Mapping[str, str]]) -> None:
        self.calls.append(("add", [dict(one) for one in partitions]))

    def mark_done(self, partitions: Sequence[Mapping[str, str]]) -> None:
        self.calls.append(("mark", [dict(one) for one in partitions]))


def test_a_catalog_gets_done_partitions_and_events(tmp_path: pathlib.Path) -> None:
    table = make_table(
        tmp_path,
        columns=(("dt", "STRING"), ("hh", "INT"), ("k", "BIGINT")),
        keys=("dt", "hh", "k"),
        partitions=("dt", "hh"),
        options={"partition.mark-done-action": "done-partition, mark_event,success-file"},
    )
    environment = Environment()
    table = dataclasses.replace(table, environment=environment)
    with pytest.raises(UnsupportedFeatureError, match="not registered"):
        table.mark_partitions_done([{"hh": 5, "dt": "a/b"}])
    table = table.with_options({"metastore.partitioned-table": "true"})
    paths = table.mark_partitions_done([{"hh": 5, "dt": "a/b"}])
    assert paths == ["dt=a%2Fb/hh=5"]
    assert environment.calls == [
        ("add", [{"dt": "a/b", "hh": "5.done"}]),
        ("mark", [{"dt": "a/b", "hh": "5"}]),
    ]
    assert (pathlib.Path(table.layout.root) / "dt=a%2Fb" / "hh=5" / "_SUCCESS").exists()


@pytest.mark.parametrize("legacy", ["true", "false"])
def test_values_are_those_of_the_columns(tmp_path: pathlib.Path, legacy: str) -> None:
    table = make_table(
        tmp_path,
        columns=(("d", "DATE"), ("k", "BIGINT")),
        keys=("d", "k"),
        partitions=("d",),
        options={"partition.legacy-name": legacy},
    )
    day = datetime.date(2024, 1, 31)
    write(table, 1, [("+I", day, 1), ("+I", day.replace(day=1), 2)])
    name = "d=19753" if legacy == "true" else "d=2024-01-31"
    for value in (day, "2024-01-31"):
        assert table.mark_partitions_done([{"d": value}]) == [name]
    assert sum(done_of(table).values()) == 1
    with pytest.raises(InvalidRequestError, match="not a value"):
        table.mark_partitions_done([{"d": "soon"}])


@pytest.fixture
def server() -> Iterator[Server]:
    bodies: list[Any] = []
    answers: list[bytes] = [b'{"result": "SUCCESS", "more": 1}']

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(answers[0])

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as found:
        thread = threading.Thread(target=found.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{found.server_port}/done", bodies, answers
        found.shutdown()


def test_a_report_by_http(
    tmp_path: pathlib.Path, server: tuple[str, list[Any], list[bytes]]
) -> None:
    url, bodies, answers = server
    table = days(
        tmp_path,
        ManualClock(START),
        **{
            "partition.mark-done-action": "http-report",
            "partition.mark-done-action.http.url": url,
            "partition.mark-done-action.http.params": "x=1",
        },
    )
    table.mark_partitions_done([{"dt": TODAY}])
    assert bodies == [
        {
            "params": "x=1",
            "table": "db.t",
            "path": table.layout.root,
            "partition": f"dt={TODAY}/",
        }
    ]
    write(table, 1, [("+I", "20231201", 1)])
    trigger = DoneTrigger()
    for answer in (b'{"result": "failed"}', b"no document", b"[]"):
        answers[0] = answer
        with pytest.raises(StorageUnavailableError, match="report"):
            trigger.run(table, now_ms=START + DAY)
    answers[0] = b'{"result": "success"}'
    assert trigger.run(table, now_ms=START + DAY) == ["dt=20231201"]


def test_what_cannot_be_carried_out_is_refused_by_name(tmp_path: pathlib.Path) -> None:
    table = days(tmp_path, ManualClock(START))
    own = table.with_options({"partition.mark-done-action": "custom"})
    with pytest.raises(UnsupportedFeatureError, match="Java classes"):
        own.mark_partitions_done([{"dt": TODAY}])
    with pytest.raises(InvalidOptionError, match="URL"):
        table.with_options({"partition.mark-done-action": "http-report"}).mark_partitions_done(
            [{"dt": TODAY}]
        )
    with pytest.raises(InvalidOptionError):
        table.with_options({"partition.mark-done-action": "sucess-file"})
    with pytest.raises(UnsupportedFeatureError, match="implemented"):
        prepared(
            table.with_options({"partition.mark-done-action.custom.class": "a.B"}),
            [("+I", TODAY, 1)],
        )


@pytest.mark.parametrize("partitions", [[], [{}], [{"dt": "a", "x": 1}], [{"x": 1}]])
def test_partitions_are_named_in_full(
    tmp_path: pathlib.Path, partitions: list[dict[str, Any]]
) -> None:
    with pytest.raises(InvalidRequestError):
        days(tmp_path, ManualClock(START)).mark_partitions_done(partitions)
