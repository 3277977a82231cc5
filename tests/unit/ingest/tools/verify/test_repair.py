# SPDX-License-Identifier: Apache-2.0
"""`lakeward verify --repair` with SQLite as the source: what it writes, refuses, and survives."""

import multiprocessing
import os
import signal
import sqlite3
import tempfile

import pytest

from ingest.cli import main as cli
from ingest.daemon.configuration import load_settings
from ingest.errors import ExitCode
from ingest.source.records import POSITION_COLUMNS
from ingest.state.lease import Lease
from ingest.state.ownership import Owner, Parking
from ingest.tools.verify import repair
from storage.clock import SystemClock
from storage.io.local import LocalFileIO
from storage.testing.invariants import check_table
from tests.changelog_kit import changes_of
from tests.unit.ingest.tools.verify.kit import Pair

COLUMNS = (("id", "BIGINT"), ("name", "STRING"), ("amount", "INT"))
CREATE = "CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT, amount INTEGER)"


class Repaired(Pair):
    """A pair with the configuration of a pipeline that fills `shop.t`."""

    def __init__(self, folder, rules=""):
        super().__init__(folder)
        self.config = folder / "pipeline.yaml"
        self.configure(rules)

    def configure(self, rules):
        text = "pipeline: {name: shop}\n"
        text += f"source: {{type: files, path: {self.warehouse}-events}}\n"
        text += f"sink: {{warehouse: {self.warehouse}}}\n{rules}"
        self.config.write_text(text)

    def arguments(self, *more, table="shop.t"):
        given = ["verify", "-c", str(self.config), table, "--source", self.url]
        return [*given, "--source-table", "t", "--json", *more]

    def rows(self):
        table = self.catalog.table("shop.t")
        return sorted(tuple(row.values()) for row in table.to_arrow().to_pylist())


@pytest.fixture
def pair(tmp_path):
    return Repaired(tmp_path)


def rows(numbers):
    return [(i, f"name {i}", i) for i in numbers]


def broken(pair, **options):
    """A lake that lacks rows 3 and 4, has 50 and 51 too many, and others than 7 and 8."""
    table = pair.lake(COLUMNS, rows(range(20)), **options)
    pair.put(table, rows([3, 4]), kind="-D")
    pair.put(table, [(50, "surplus", 1), (51, None, None), (7, "other", 7), (8, "name 8", None)])
    pair.source(CREATE, rows=rows(range(20)))
    return table


def repair_all(pair, capsys):
    """A repair that leaves no difference; its output."""
    code, found = pair.run(capsys, "--repair")
    assert code == 0, found
    return found


BUCKETS = [{"bucket": "2"}, {"bucket": "-1"}, {"bucket": "2", "deletion-vectors.enabled": "true"}]


@pytest.mark.parametrize("options", BUCKETS, ids=["fixed", "dynamic", "vectors"])
def test_rows_of_every_kind_of_difference_are_repaired(pair, capsys, options):
    broken(pair, options=options)
    code, found = pair.run(capsys, "--repair")
    assert (code, found["outcome"]) == (0, "repaired")
    assert (found["missing"], found["extra"], found["different"]) == (2, 2, 2)
    counted = {name: found["repair"][name] for name in ("upserts", "deletes", "unrepaired")}
    assert counted == {"upserts": 4, "deletes": 2, "unrepaired": {}}
    assert pair.rows() == rows(range(20))
    assert pair.run(capsys)[1]["outcome"] == "equal"
    before = pair.catalog.table("shop.t").latest_snapshot().id
    assert pair.run(capsys, "--repair")[1]["outcome"] == "equal"
    assert pair.catalog.table("shop.t").latest_snapshot().id == before


def test_a_dry_run_counts_and_writes_nothing(pair, capsys):
    table = broken(pair)
    before = table.latest_snapshot().id
    code, found = pair.run(capsys, "--repair", "--dry-run")
    assert (code, found["outcome"]) == (ExitCode.DIFFERENT, "different")
    assert (found["repair"]["upserts"], found["repair"]["deletes"]) == (4, 2)
    assert table.latest_snapshot().id == before
    assert not (pair.warehouse / ".lakeward").exists()


def test_rules_of_the_pipeline_are_applied(pair, capsys):
    rules = """tables:
  - match: shop.t
    mask: {name: redact()}
    computed: ["twice = amount * 2"]
    filter: amount >= 2
"""
    pair.configure(rules)
    columns = (*COLUMNS, ("twice", "INT"))
    made = [(i, "***", i, i * 2) for i in range(2, 10)]
    table = pair.lake(columns, made)
    pair.put(table, [(5, "***", -5, -10)])
    pair.put(table, [made[1]], kind="-D")
    pair.put(table, [(1, "***", 30, 60)])
    pair.source(CREATE, rows=rows(range(10)))
    repair_all(pair, capsys)
    assert pair.rows() == made


def test_soft_deletes_mark_rows(pair, capsys):
    pair.configure("tables: [{match: shop.t, deletes: soft}]\n")
    columns = (*COLUMNS, ("_cdc_deleted", "BOOLEAN"))
    table = pair.lake(columns, [(*row, False) for row in rows(range(5))])
    pair.put(table, [(7, "surplus", 7, False), (8, "deleted", 8, True), (4, "name 4", 4, True)])
    pair.source(CREATE, rows=rows(range(5)))
    repair_all(pair, capsys)
    expected = [(*row, False) for row in rows(range(5))]
    assert pair.rows() == [*expected, (7, "surplus", 7, True), (8, "deleted", 8, True)]


def test_a_computed_partition_moves_the_row(pair, capsys):
    pair.configure("tables: [{match: shop.t, partition.by: ['part = amount % 3'], bucket: -1}]\n")
    columns = (*COLUMNS, ("part", "INT"))
    table = pair.lake(columns, [(i, f"name {i}", i, i % 3) for i in range(6)], keys=("id", "part"))
    pair.put(table, [(4, "name 4", 4, 1)], kind="-D")
    pair.put(table, [(4, "moved", 5, 2)])
    pair.source(CREATE, rows=rows(range(6)))
    repair_all(pair, capsys)
    assert pair.rows() == [(i, f"name {i}", i, i % 3) for i in range(6)]


def test_a_row_in_another_partition_is_moved(pair, capsys):
    """The partition column is not in the key: an index says where the row is."""
    columns = (*COLUMNS, ("part", "STRING"))
    made = [(i, f"name {i}", i, f"p{i % 2}") for i in range(6)]
    options = {"bucket": "-1"}
    table = pair.lake(columns, made, partitions=("part",), options=options)
    pair.put(table, [(4, "name 4", 4, "p1"), (7, "surplus", 7, "p0")])
    pair.put(table, [made[2]], kind="-D")
    create = "CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT, amount INTEGER, part TEXT)"
    pair.source(create, rows=made)
    repair_all(pair, capsys)
    assert pair.rows() == made


def test_tables_in_the_order_of_the_source(pair, capsys):
    """A repaired row keeps its position, so a later event wins and an earlier one loses."""
    positions = [(name, "BIGINT") for name in POSITION_COLUMNS[:2]]
    options = {"sequence.field": ",".join(name for name, _ in positions)}
    table = pair.lake(
        (*COLUMNS, *positions), [(*row, 0, 100) for row in rows(range(5))], options=options
    )
    pair.put(table, [(2, "wrong", 2, 0, 100), (9, "surplus", 9, 0, 100)])
    pair.source(CREATE, rows=rows(range(6)))
    repair_all(pair, capsys)
    assert [row[:3] for row in pair.rows()] == rows(range(6))
    assert [row[4] for row in pair.rows()] == [100] * 5 + [None]
    pair.put(table, [(2, "earlier", 2, 0, 99), (3, "later", 3, 0, 101), (5, "event", 5, 0, 1)])
    assert [row[1] for row in pair.rows()][2:6] == ["name 2", "later", "name 4", "event"]


def test_a_row_of_a_later_order_is_said_to_stay(pair, capsys):
    table = pair.lake(COLUMNS, rows(range(5)), options={"sequence.field": "amount"})
    pair.put(table, [(1, "ahead", 100), (2, "same", 2)])
    pair.source(CREATE, rows=rows(range(5)))
    code, found = pair.run(capsys, "--repair")
    assert (code, found["outcome"]) == (ExitCode.DIFFERENT, "different")
    assert list(found["repair"]["unrepaired"].values()) == [1]
    assert pair.rows()[1:3] == [(1, "ahead", 100), (2, "name 2", 2)]


def test_values_that_do_not_fit_stay_and_are_counted(pair, capsys):
    table = pair.lake(COLUMNS, rows(range(3)))
    pair.put(table, [(2, "other", 2)])
    pair.source(CREATE, rows=[(0, "name 0", 2**40), *rows([1, 2])])
    code, found = pair.run(capsys, "--repair")
    assert code == ExitCode.DIFFERENT
    assert found["repair"]["unrepaired"] == {"a value does not fit the lake's type": 1}
    assert pair.rows() == rows(range(3))


@pytest.mark.parametrize("limit", ["2", "100"])
def test_a_search_that_ends_at_its_limit_is_continued(pair, capsys, limit):
    broken(pair)
    runs_needed = 0
    while (code := pair.run(capsys, "--repair", "--limit", limit)[0]) == ExitCode.RETRY:
        runs_needed += 1
        assert runs_needed < 5
    assert code == 0
    assert pair.rows() == rows(range(20))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--where", "id > 3"], "--key-range"),
        (["--where-lake", "id > 3"], "--key-range"),
        (["--key", "id"], "--key-range"),
        (["--exclude", "name"], "--key-range"),
        (["--rechecks", "0"], "--rechecks"),
    ],
)
def test_options_that_hide_rows_or_columns_are_refused(pair, capsys, arguments, said):
    broken(pair)
    before = pair.rows()
    assert runs_cli(pair, "--repair", *arguments) == ExitCode.CONFIG
    assert said in capsys.readouterr().err
    assert pair.rows() == before


def runs_cli(pair, *more):
    return cli.main(pair.arguments(*more))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"merge-engine": "partial-update"}, "merge engine"),
        ({"merge-engine": "first-row"}, "merge engine"),
        ({"lakeward.source-table": "shared: shop.t"}, "several source tables"),
    ],
)
def test_tables_that_cannot_be_repaired_are_refused(pair, capsys, options, said):
    table = pair.lake(COLUMNS, rows(range(3)), options=options)
    before = table.latest_snapshot().id
    pair.source(CREATE, rows=rows(range(4)))
    assert runs_cli(pair, "--repair") == ExitCode.CONFIG
    captured = capsys.readouterr()
    assert said in captured.out + captured.err
    assert table.latest_snapshot().id == before


def test_a_key_that_the_source_lacks_is_refused(pair, capsys):
    columns = (("shard", "STRING"), *COLUMNS)
    pair.lake(columns, [("a", *rows([1])[0]), ("b", 1, "of b", 2)], keys=("shard", "id"))
    pair.source(CREATE, rows=rows([1]))
    assert runs_cli(pair, "--repair") == ExitCode.CONFIG
    assert "shard" in capsys.readouterr().out
    assert len(pair.rows()) == 2


def test_the_key_range_bounds_what_is_repaired(pair, capsys):
    broken(pair)
    assert pair.run(capsys, "--repair", "--key-range", "3..10")[0] == 0
    expected = [*rows(range(20)), (50, "surplus", 1), (51, None, None)]
    assert pair.rows() == expected


# --- beside others


def test_a_commit_between_read_and_commit_starts_over(pair, capsys, monkeypatch):
    """What another writer put there after the lake was read is not overwritten unseen."""
    table = broken(pair)
    write = repair.Repair._write
    others = iter([[(60, "late", 1)], [(7, "late", 1)]])

    def slow(self, change, require_rest):
        for late in others:
            pair.put(table, late)
            break
        return write(self, change, require_rest)

    monkeypatch.setattr(repair.Repair, "_write", slow)
    repair_all(pair, capsys)
    assert pair.rows() == [*rows(range(20)), (60, "late", 1)]  # no candidate; the next run has it
    assert pair.run(capsys, "--repair")[1]["extra"] == 1
    assert pair.rows() == rows(range(20))


def test_a_commit_between_the_rows_and_their_compaction(pair, capsys, monkeypatch):
    """Once the rows are published their files stay, whatever becomes of the compaction."""
    table = broken(pair, options={"bucket": "1", "deletion-vectors.enabled": "true"})
    check = repair.Repair._check
    calls = []

    def late(self, user, base, require_rest, latest):
        calls.append(latest.id)
        if len(calls) == 2:
            pair.put(table, [(60, "late", 1)])
            latest = table.latest_snapshot()
        check(self, user, base, require_rest, latest)

    monkeypatch.setattr(repair.Repair, "_check", late)
    found = repair_all(pair, capsys)
    assert len(found["repair"]["snapshots"]) == 1
    assert len(calls) >= 2
    assert pair.rows() == [*rows(range(20)), (60, "late", 1)]
    check_table(table)


def test_the_source_changes_between_the_reads(pair, capsys, monkeypatch):
    """A row is written as the last read found it, or not at all."""
    broken(pair)
    change = repair.Repair._change

    def moving(self, keys, report):
        with sqlite3.connect(pair.database) as connection:
            connection.execute("UPDATE t SET name = 'new', amount = 70 WHERE id = 7")
            connection.execute("DELETE FROM t WHERE id = 3")
            connection.execute("INSERT OR IGNORE INTO t VALUES (50, 'surplus', 1)")
        return change(self, keys, report)

    monkeypatch.setattr(repair.Repair, "_change", moving)
    repair_all(pair, capsys)
    monkeypatch.undo()
    assert pair.run(capsys)[1]["outcome"] == "equal"


def test_a_daemon_starts_only_after_the_repair(pair, capsys, monkeypatch):
    broken(pair)
    change = repair.Repair._change
    seen = []

    def watched(self, keys, report):
        settings = load_settings(pair.config)
        io = LocalFileIO(durable=False)
        other = Owner.this_process(0)
        lease = Lease(io, settings.sink.warehouse, "shop", SystemClock(), ttl_s=5, me=other)
        newest = lease.ownership.newest()
        seen.append(newest is not None and newest.kind)
        return change(self, keys, report)

    monkeypatch.setattr(repair.Repair, "_change", watched)
    repair_all(pair, capsys)
    assert seen
    assert "left" not in seen


class FakeDaemon:
    """Answers requests as a daemon does: parks and resumes tables."""

    def __init__(self, pair):
        self.parking = Parking(LocalFileIO(durable=False), str(pair.warehouse), "shop")
        self.asked = []
        self.fails_at = None

    def ask(self, settings, kind, arguments, options):
        del settings, options
        self.asked.append(kind)
        self.parking.load()
        if kind == "pause":
            for name in arguments["tables"]:
                self.parking.park(name, reason=arguments["reason"], by="person", since={}, now_ms=1)
        else:
            self.parking.resume(arguments["tables"], {})
        if self.fails_at == kind:
            raise KeyboardInterrupt


@pytest.fixture
def daemon(pair, monkeypatch):
    made = FakeDaemon(pair)

    def held(settings, **_):
        raise repair.StreamHeldError("a daemon of this stream runs already")

    monkeypatch.setattr(repair, "owned_stream", held)
    monkeypatch.setattr(repair, "request_and_wait", made.ask)
    return made


def test_a_running_daemon_parks_the_table_meanwhile(pair, capsys, daemon):
    broken(pair)
    repair_all(pair, capsys)
    assert daemon.asked == ["pause", "resume"]
    assert pair.rows() == rows(range(20))


def test_a_table_that_was_parked_before_stays_parked(pair, capsys, daemon):
    broken(pair)
    daemon.parking.park("shop.t", reason="by hand", by="person", since={}, now_ms=1)
    repair_all(pair, capsys)
    assert daemon.asked == []


def test_a_kill_leaves_the_table_parked_and_the_next_run_resumes_it(pair, capsys, daemon):
    broken(pair)
    daemon.parking.park("shop.t", reason=repair.REASON, by="person", since={}, now_ms=1)
    repair_all(pair, capsys)
    assert daemon.asked == ["resume"]
    daemon.parking.load()
    assert daemon.parking.parked() == {}


def test_a_table_that_is_resumed_meanwhile_is_not_written(pair, capsys, daemon, monkeypatch):
    table = broken(pair)
    before = table.latest_snapshot().id
    write = repair.Repair._write

    def resumed(self, change, require_rest):
        daemon.parking.load()
        daemon.parking.resume(["shop.t"], {})
        return write(self, change, require_rest)

    monkeypatch.setattr(repair.Repair, "_write", resumed)
    code, _ = pair.run(capsys, "--repair")
    assert code not in (0, ExitCode.DIFFERENT)
    assert table.latest_snapshot().id == before


def _die_in_repair(pair, scratch, step, after):
    """Run a repair that is killed at the given call of a step; its scratch files stay."""
    tempfile.tempdir = str(scratch)
    calls = iter(range(after, -1, -1))
    real = getattr(repair.Repair, step)

    def dying(self, *arguments):
        left = next(calls)
        if left == 0 and step != "_check_result":
            os.kill(os.getpid(), signal.SIGKILL)
        result = real(self, *arguments)
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(repair.Repair, step, dying)
    repair._KEYS_PER_COMMIT = 2
    runs_cli(pair, "--repair")


@pytest.mark.parametrize("step", ["_change", "_check", "_write", "_check_result"])
@pytest.mark.parametrize(
    "after", [pytest.param(0, marks=pytest.mark.full), 1, pytest.param(2, marks=pytest.mark.full)]
)
def test_a_repair_that_is_killed_is_completed_by_the_next_run(pair, capsys, tmp_path, step, after):
    broken(pair)
    context = multiprocessing.get_context("fork")
    child = context.Process(target=_die_in_repair, args=(pair, tmp_path, step, after))
    child.start()
    child.join(60)
    assert child.exitcode == -signal.SIGKILL
    repair_all(pair, capsys)
    assert pair.rows() == rows(range(20))


@pytest.mark.parametrize("producer", ["input", "lookup", "full-compaction"])
def test_the_changelog_tells_exactly_what_changed(pair, capsys, producer):
    table = broken(pair, options={"changelog-producer": producer, "bucket": "1"})
    if producer == "full-compaction":
        compact(table)
    before = {row[0]: row for row in pair.rows()}
    newest = table.latest_snapshot().id
    repair_all(pair, capsys)
    if producer == "full-compaction":
        compact(table)
    state = dict(before)
    for snapshot_id in range(newest + 1, table.latest_snapshot().id + 1):
        for kind, *values in changes_of(table, snapshot_id):
            row = tuple(values)
            if kind in ("-D", "-U"):
                assert kind == "-U" or state[row[0]] == row, "a delete brings the whole row"
                state.pop(row[0], None)
            else:
                state[row[0]] = row
    assert sorted(state.values()) == rows(range(20))


def compact(table):
    with table.new_write("compactor") as write:
        write.compact(full=True)
        messages = write.prepare_commit()
    table.new_commit("compactor").commit(messages, 1)
