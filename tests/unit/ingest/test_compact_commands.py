# SPDX-License-Identifier: Apache-2.0
"""`lakeward compact`: which tables, what is printed, which exit code."""

import io
import json
import os
import signal

import pytest
import yaml

from ingest.cli import maintain as compact_command
from ingest.cli.main import main
from ingest.cli.maintain import progress_text, show_progress
from ingest.cli.parameters import ProgressLog, TerminalLine
from ingest.daemon import compact_runs
from ingest.daemon.compact_runs import Selection, TableRun, exit_code, selected
from ingest.errors import ExitCode
from storage.catalog.catalog import FileSystemCatalog
from storage.clock import ManualClock
from storage.errors import (
    CorruptDataError,
    InvalidRequestError,
    NotFoundError,
    StorageUnavailableError,
    UnsupportedFeatureError,
)
from storage.format.metadata.schema import new_schema
from storage.format.types.types import parse_type
from storage.table.compaction.compact_table import BucketFailure, CompactProgress, CompactReport
from tests.table_kit import rows_of, write

COLUMNS = [("p", parse_type("STRING")), ("k", parse_type("BIGINT")), ("v", parse_type("STRING"))]


@pytest.fixture
def warehouse(tmp_path):
    """shop.orders and shop.lines with work to do, other.t without."""
    catalog = FileSystemCatalog(str(tmp_path))
    for name in ("shop.orders", "shop.lines", "other.t"):
        database = name.partition(".")[0]
        catalog.create_database(database, ignore_if_exists=True)
        schema = new_schema(
            COLUMNS,
            primary_keys=("p", "k"),
            partition_keys=("p",),
            options={"bucket": "2", "write-only": "true"},
            now_ms=0,
        )
        table = catalog.create_table(name, schema)
        for number in range(3 if database == "shop" else 0):
            write(table, number, [("+I", p, k, f"{number}") for p in "ab" for k in range(9)])
    return tmp_path


def compact(capsys, warehouse, *arguments):
    code = main(["compact", "--warehouse", str(warehouse), "--parallelism", "1", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def table_of(warehouse, name):
    return FileSystemCatalog(str(warehouse)).table(name)


def documents(text):
    return [json.loads(line) for line in text.splitlines()]


def levels(warehouse, name):
    table = table_of(warehouse, name)
    return {e.file.level for e in table.new_scan().live_entries(table.latest_snapshot())}


def test_one_table_is_compacted_fully(capsys, warehouse):
    before = rows_of(table_of(warehouse, "shop.orders"))
    code, out, _ = compact(capsys, warehouse, "shop.orders")
    assert code == 0
    assert "shop.orders" in out
    assert "done" in out
    assert levels(warehouse, "shop.orders") == {5}
    assert levels(warehouse, "shop.lines") == {0}
    assert rows_of(table_of(warehouse, "shop.orders")) == before


def test_a_database_and_its_summary_as_json(capsys, warehouse):
    code, out, _ = compact(capsys, warehouse, "--database", "shop", "--json")
    assert code == 0
    found = documents(out)
    assert [one["table"] for one in found] == ["shop.lines", "shop.orders"]
    for one in found:
        assert (one["kind"], one["outcome"], one["compacted"]) == ("full", "done", 4)
        assert (one["files_before"], one["files_after"]) == (12, 4)
        assert len(one["snapshots"]) == 1


def test_patterns_choose_tables(warehouse):
    catalog = FileSystemCatalog(str(warehouse))
    chosen = Selection(including=r"shop\.(orders|lines)", excluding=r".*\.lines")
    assert selected(catalog, chosen) == ["shop.orders"]
    assert selected(catalog, Selection(database="shop", excluding=".*")) == []
    assert selected(catalog, Selection(including=".*")) == ["other.t", "shop.lines", "shop.orders"]
    both = Selection(tables=("other.t",), database="shop")
    assert selected(catalog, both) == ["other.t", "shop.lines", "shop.orders"]
    with pytest.raises(NotFoundError):
        selected(catalog, Selection(database="nope"))
    with pytest.raises(InvalidRequestError, match="not a regular expression"):
        selected(catalog, Selection(including="("))


def test_partitions_and_a_dry_run(capsys, warehouse):
    arguments = ("shop.orders", "--partition", "p=a", "--dry-run")
    code, out, _ = compact(capsys, warehouse, *arguments, "--json")
    assert code == 0
    found = documents(out)
    assert {one["partition"] for one in found} == {"p=a"}
    assert {(one["runs"], one["takes_files"], one["to_level"]) for one in found} == {(3, 3, 5)}
    code, out, _ = compact(capsys, warehouse, *arguments)
    assert "would compact 2 of 2 buckets in 1 tables: 6 files" in out
    assert levels(warehouse, "shop.orders") == {0}
    compact(capsys, warehouse, "shop.orders", "--partition", "p=a")
    assert levels(warehouse, "shop.orders") == {0, 5}


def test_minor_takes_what_is_due(capsys, warehouse):
    code, out, _ = compact(capsys, warehouse, "shop.orders", "--minor", "--json")
    assert code == 0
    assert documents(out)[0]["outcome"] == "nothing"


def test_the_warehouse_of_a_pipeline(capsys, warehouse, tmp_path_factory):
    raw = {
        "pipeline": {"name": "shop"},
        "source": {"type": "files", "path": "events", "topics.pattern": ".*"},
        "sink": {"warehouse": str(warehouse)},
    }
    path = tmp_path_factory.mktemp("config") / "lakeward.yaml"
    path.write_text(yaml.safe_dump(raw))
    assert main(["compact", "-c", str(path), "shop.orders", "--dry-run"]) == 0
    assert "would compact 4 of 4 buckets" in capsys.readouterr().out


def test_nothing_chosen_is_a_wrong_command_line(capsys, warehouse):
    with pytest.raises(SystemExit) as raised:
        compact(capsys, warehouse)
    assert raised.value.code == ExitCode.USAGE
    assert "specify tables" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ("shop.orders", "--partition", "a"),
        ("shop.orders", "--watch", "5"),
        ("shop.orders", "--parallelism", "0"),
    ],
)
def test_wrong_command_lines(capsys, warehouse, arguments):
    with pytest.raises(SystemExit) as raised:
        compact(capsys, warehouse, *arguments)
    assert raised.value.code == ExitCode.USAGE


def test_a_missing_table_does_not_keep_the_others_from_it(capsys, warehouse):
    code, out, err = compact(capsys, warehouse, "shop.nope", "shop.orders", "--json")
    assert code == ExitCode.CONFIG
    assert [one["outcome"] for one in documents(out)] == ["failed", "done"]
    assert "shop.nope" in err


def test_a_lost_race_is_worth_another_try(capsys, warehouse, monkeypatch):
    def loses(*_arguments, **_options):
        return CompactReport(planned=2, compacted=1, dropped=4, lost=1)

    monkeypatch.setattr(compact_runs, "compact_table", loses)
    code, out, err = compact(capsys, warehouse, "shop.orders")
    assert code == ExitCode.RETRY
    assert "lost" in out
    assert "run it again" in err


def test_watching_goes_on_until_told_to_stop(capsys, warehouse, monkeypatch):
    passes = []
    original = compact_runs.compact_table

    def counted(*arguments, **options):
        passes.append(1)
        if len(passes) == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        return original(*arguments, **options)

    monkeypatch.setattr(compact_runs, "compact_table", counted)
    code, out, err = compact(
        capsys, warehouse, "shop.orders", "--full", "--watch", "10ms", "--json"
    )
    assert code == 0
    (one,) = documents(out)
    assert (one["compacted"], one["outcome"]) == (4, "done")
    assert len(passes) == 3
    assert "stopping" in err


def test_watching_waits_for_a_database_that_is_not_there_yet(capsys, warehouse, monkeypatch):
    asked = []
    original = compact_command.selected

    def counted(*arguments):
        asked.append(1)
        if len(asked) == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        return original(*arguments)

    monkeypatch.setattr(compact_command, "selected", counted)
    code, _, _ = compact(capsys, warehouse, "--database", "later", "--watch", "10ms")
    assert (code, len(asked)) == (0, 3)


def run_with(error=None, failures=(), lost=0, table="a.b"):
    report = CompactReport(lost=lost, failures=list(failures))
    return TableRun(table=table, kind="full", report=report, error=error)


def test_exit_codes():
    failure = BucketFailure(partition="", bucket=0, error=CorruptDataError("bad"))
    refused = UnsupportedFeatureError("postponed")
    assert exit_code([run_with()]) == 0
    assert exit_code([run_with(lost=1)]) == ExitCode.RETRY
    assert exit_code([run_with(lost=1), run_with(failures=[failure])]) == ExitCode.DATA
    assert exit_code([run_with(StorageUnavailableError("gone"))]) == ExitCode.UNAVAILABLE
    assert exit_code([run_with(refused)]) == 0
    assert exit_code([run_with(refused)], table_names=["a.b"]) == ExitCode.CONFIG
    assert run_with(refused).outcome == "refused"


def progress(done=3, **changes):
    values = {
        "buckets": 12,
        "done": done,
        "size": 4_000_000,
        "done_size": 1_000_000,
        "rows": 100_000,
        "done_rows": 25_000,
        "files_before": 48,
        "files_after": 30,
        "dropped": 1,
        "elapsed_s": 65.0,
        "eta_s": 195.0,
    }
    return CompactProgress(**{**values, **changes})


def test_progress_in_one_line():
    assert progress_text("shop.orders", progress()) == (
        "shop.orders  3/12 buckets  1 MB of 4 MB  25,000 rows  files 48 → 30  1:05  3:15 left"
        "  1 discarded"
    )


def test_a_terminal_gets_one_line_over_and_over():
    stream, clock = io.StringIO(), ManualClock()
    line = TerminalLine(stream, clock)
    show_progress(line, "a.b", progress(1))
    show_progress(line, "a.b", progress(2))  # too soon
    clock.advance(200)
    show_progress(line, "a.b", progress(3))
    line.clear()
    drawn = stream.getvalue().split("\r")[1:]
    assert len(drawn) == 3
    assert "3/12" in drawn[1]
    assert drawn[2] == "\x1b[K"
    assert "\n" not in stream.getvalue()


def test_elsewhere_a_log_line_now_and_then(caplog):
    clock = ManualClock()
    log = ProgressLog(clock)
    with caplog.at_level("INFO"):
        show_progress(log, "a.b", progress(1))
        clock.advance(11_000)
        show_progress(log, "a.b", progress(2))
        show_progress(log, "a.b", progress(3))
    assert [record.buckets for record in caplog.records] == ["2/12"]
