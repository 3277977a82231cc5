# SPDX-License-Identifier: Apache-2.0
"""Tables in a real S3 server: contract, races, kills, lost answers, a slow store, the daemon."""

import json
import multiprocessing
import os
import pickle
import random
import signal
import subprocess
import time

import pytest
import yaml

from ingest.cli import main as cli
from ingest.daemon import configuration
from ingest.daemon.configuration import load_settings
from ingest.errors import ExitCode
from ingest.state.ownership import newest_record
from ingest.tools.demo.shop import DemoShop, write_archive
from storage.catalog.catalog import FileSystemCatalog
from storage.clock import ManualClock
from storage.errors import NotFoundError, StorageUnavailableError
from storage.io.object_store import ObjectStoreFileIO
from storage.table.table import FileStoreTable
from storage.testing.invariants import check_table
from tests.crash.deaths import forget_caches
from tests.e2e.daemon_process import drain
from tests.e2e.lossy_proxy import LossyProxy, Rule
from tests.e2e.s3_server import options_for
from tests.faulty_io import Fault, FaultyFileIO, SimulatedCrash
from tests.interop.peers import peers_python
from tests.table_kit import make_table, prepared, rows_of
from tests.unit.storage.file_io_contract import FileIOContract, fail_while_writing

pytestmark = pytest.mark.s3

IMPATIENT = {
    "store.max-retries": "2",
    "store.retry-timeout": "4 s",
    "store.request-timeout": "1 s",
}


@pytest.fixture
def root(s3_server):
    return f"{s3_server.new_place()}/warehouse"


@pytest.fixture
def store(s3_server, root):
    return ObjectStoreFileIO(root, s3_server.options)


@pytest.fixture
def proxy(s3_server):
    with LossyProxy(s3_server.endpoint) as running:
        yield running


def table_at(root, store_options, **arguments):
    return make_table(root, file_io=ObjectStoreFileIO(root, store_options), **arguments)


def committed(table):
    """(user, identifier, kind) of all snapshots; their ids have no gap."""
    ids = table.snapshots.ids()
    assert ids == list(range(1, len(ids) + 1))
    found = [table.snapshots.read(number) for number in ids]
    return [(each.commit_user, each.commit_identifier, each.commit_kind.value) for each in found]


class TestContract(FileIOContract):
    """The shared tests against the server."""


def test_a_pickled_store_works_in_another_process(store, root):
    store.write_bytes(f"{root}/x", b"1")
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        assert pool.apply(store.read_bytes, (f"{root}/x",)) == b"1"


def forked_reading(store, path, results):
    try:
        results.put(store.read_bytes(path))
    except BaseException as error:
        results.put(type(error).__name__)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_after_first_use_is_an_error_and_does_not_hang(store, root):
    store.write_bytes(f"{root}/x", b"1")
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    child = context.Process(target=forked_reading, args=(store, f"{root}/x", results))
    child.start()
    assert results.get(timeout=20) == "InternalError"
    child.join(10)


def test_refused_credentials_and_missing_buckets_are_told_apart(s3_server, root):
    wrong = ObjectStoreFileIO(root, {**s3_server.options, "s3.secret-key": "wrong"})
    for call in (wrong.read_bytes, wrong.exists, wrong.list, wrong.delete):
        with pytest.raises(PermissionError, match=r"credentials|s3\.secret-key"):
            call(f"{root}/x")
    with pytest.raises(PermissionError):
        wrong.put_if_absent(f"{root}/x", b"1")
    nowhere = ObjectStoreFileIO("s3://no-such-bucket", s3_server.options)
    with pytest.raises(NotFoundError, match="make the bucket"):
        nowhere.list("s3://no-such-bucket/x")


def commit_many(root, options, number, rounds, start, failures):
    try:
        table = FileStoreTable.open(f"{root}/db.db/t", options=options)
        start.wait()
        for round_ in range(rounds):
            messages = prepared(
                table, [("+I", number * 1000 + round_, str(number))], compaction=number == 0
            )
            table.new_commit(f"user-{number}").commit(messages, round_)
    except BaseException as error:
        failures.put(repr(error))
        raise


@pytest.mark.parametrize("rounds", [20, pytest.param(50, marks=pytest.mark.full)])
def test_racing_committers_lose_nothing(s3_server, root, rounds):
    table = table_at(root, s3_server.options, options={"commit.max-retries": "100"})
    context = multiprocessing.get_context("spawn")
    start, failures = context.Event(), context.Queue()
    running = [
        context.Process(
            target=commit_many, args=(root, s3_server.options, n, rounds, start, failures)
        )
        for n in range(2)
    ]
    for process in running:
        process.start()
    start.set()
    for process in running:
        process.join(timeout=300)
    assert [process.exitcode for process in running] == [0, 0], failures.get(timeout=5)
    found = committed(table)
    assert len(found) == len(set(found))
    appends = sorted((user, number) for user, number, kind in found if kind == "APPEND")
    assert appends == [(f"user-{n}", round_) for n in range(2) for round_ in range(rounds)]
    assert rows_of(table) == sorted(
        [(n * 1000 + round_, str(n)) for n in range(2) for round_ in range(rounds)], key=repr
    )
    check_table(table)


def commit_and_report(root, options, identifier, rows, pipe):
    table = FileStoreTable.open(f"{root}/db.db/t", options=options)
    pipe.send("ready")
    messages = prepared(table, rows)
    pipe.send("written")
    table.new_commit("stream").commit(messages, identifier)
    pipe.send("done")
    time.sleep(60)


@pytest.mark.parametrize("kills", [3, pytest.param(25, marks=pytest.mark.full)])
def test_a_commit_killed_at_any_moment_lands_once_when_repeated(s3_server, root, kills):
    chance = random.Random(kills)
    table = table_at(root, s3_server.options)
    context = multiprocessing.get_context("spawn")
    for identifier in range(kills):
        rows = [("+I", identifier * 10 + n, "x") for n in range(3)]
        here, there = context.Pipe()
        child = context.Process(
            target=commit_and_report, args=(root, s3_server.options, identifier, rows, there)
        )
        child.start()
        assert here.recv() == "ready"
        if chance.random() < 0.7:
            assert here.recv() == "written"
        time.sleep(chance.random() * 0.06)
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        forget_caches()
        again = FileStoreTable.open(table.layout.root, options=s3_server.options)
        check_table(again)
        assert len(rows_of(again)) in (3 * identifier, 3 * identifier + 3)
        again.new_commit("stream").commit(prepared(again, rows), identifier)
        assert len(rows_of(again)) == 3 * identifier + 3
    found = committed(table)
    assert len(found) == len(set(found))
    check_table(table)


@pytest.mark.parametrize(
    "stride", [pytest.param(1, marks=pytest.mark.full), 4], ids=["every", "some"]
)
@pytest.mark.parametrize("mode", ["before", "after", "lost_response", "error"])
def test_a_commit_that_dies_at_an_operation_lands_once_when_repeated(
    s3_server, root, store, mode, stride
):
    table = table_at(root, s3_server.options, clock=ManualClock())
    plain = FaultyFileIO(store)
    done = 0

    def step(file_io, identifier):
        forget_caches()
        opened = FileStoreTable.open(table.layout.root, file_io=file_io, clock=table.clock)
        rows = [("+I", identifier, "x"), ("+U", 0, str(identifier))]
        opened.new_commit("stream").commit(prepared(opened, rows), identifier)

    step(plain, 0)
    step(plain, 1)
    operations = len(plain.operations) // 2 + 4
    for number, at in enumerate(range(1, operations, stride)):
        identifier = number + 2
        try:
            step(FaultyFileIO(store, Fault(at, mode)), identifier)
        except (SimulatedCrash, StorageUnavailableError):
            done += 1
        forget_caches()
        check_table(table)
        step(store, identifier)
        rows = sorted(rows_of(FileStoreTable.open(table.layout.root, file_io=store)))
        assert [key for key, _ in rows] == list(range(identifier + 1))
        assert rows[0] == (0, str(identifier))
    found = committed(FileStoreTable.open(table.layout.root, file_io=store))
    assert len(found) == len(set(found))
    if mode in ("before", "after"):
        assert done


@pytest.mark.parametrize("fault", ["drop answer", "drop request"])
@pytest.mark.parametrize("times", [1, 4])
def test_a_lost_answer_to_the_publishing_put_makes_one_snapshot(
    s3_server, proxy, root, fault, times
):
    table = table_at(root, options_for(proxy.endpoint))
    for identifier in range(3):
        proxy.rules[:] = [Rule("PUT", r"/snapshot/snapshot-\d+$", fault, times=times)]
        rows = [("+I", identifier, "x")]
        table.new_commit("stream").commit(prepared(table, rows), identifier)
        assert proxy.rules[0].times < times
    direct = FileStoreTable.open(table.layout.root, options=s3_server.options)
    assert committed(direct) == [("stream", n, "APPEND") for n in range(3)]
    assert [key for key, _ in rows_of(direct)] == [0, 1, 2]
    check_table(direct)


def test_a_lost_answer_and_a_lost_look_afterwards_are_settled_by_the_committer(
    s3_server, proxy, root
):
    table = table_at(root, {**options_for(proxy.endpoint), **IMPATIENT})
    proxy.rules[:] = [
        Rule("PUT", r"/snapshot/snapshot-1$", "drop answer", times=1),
        Rule("GET", r"/snapshot/snapshot-1$", "drop answer", times=3),
    ]
    table.new_commit("stream").commit(prepared(table, [("+I", 1, "x")]), 0)
    direct = FileStoreTable.open(table.layout.root, options=s3_server.options)
    assert committed(direct) == [("stream", 0, "APPEND")]


def test_a_busy_store_is_asked_again(s3_server, proxy, root):
    table = table_at(root, options_for(proxy.endpoint))
    proxy.rules.append(Rule("", "", "503", times=3))
    table.new_commit("stream").commit(prepared(table, [("+I", 1, "x")]), 0)
    proxy.rules.append(Rule("PUT", "", "503", times=2))
    table.new_commit("stream").commit(prepared(table, [("+I", 2, "x")]), 1)
    proxy.rules.append(Rule("GET", "", "503", times=2))
    forget_caches()
    assert [key for key, _ in rows_of(table)] == [1, 2]


def test_how_many_requests_a_commit_and_a_plan_take(s3_server, proxy, root):
    table = table_at(root, options_for(proxy.endpoint))
    for identifier in range(4):
        proxy.seen.clear()
        rows = [("+I", identifier, "x")]
        table.new_commit("stream").commit(prepared(table, rows), identifier)
    assert len(proxy.seen) <= 18
    forget_caches()
    proxy.seen.clear()
    opened = FileStoreTable.open(table.layout.root, options=options_for(proxy.endpoint))
    plan = opened.new_scan().plan()
    manifests = [path for _, path in proxy.seen if "/manifest/manifest-" in path]
    assert len(proxy.seen) - len(manifests) <= 8
    proxy.seen.clear()
    assert opened.new_read().to_table(plan).num_rows == 4
    assert len(proxy.seen) <= 1 + sum(len(split.files) for split in plan.splits)


@pytest.mark.parametrize("fault", ["503", "delay", "drop request"])
def test_a_store_that_stays_down_is_a_typed_error_in_time(s3_server, proxy, root, fault):
    options = {**options_for(proxy.endpoint), **IMPATIENT, "store.request-timeout": "300 ms"}
    ObjectStoreFileIO(root, s3_server.options).write_bytes(f"{root}/x", b"1")
    file_io = ObjectStoreFileIO(root, options)
    proxy.rules.append(Rule("", "", fault, seconds=2.0))
    started = time.monotonic()
    for call in (file_io.read_bytes, file_io.open_input):
        with pytest.raises(StorageUnavailableError):
            call(f"{root}/x")
    with pytest.raises(StorageUnavailableError):
        file_io.put_if_absent(f"{root}/y", b"1")
    assert time.monotonic() - started < 40


def test_validate_tries_the_store_out(s3_server, root, tmp_path):
    def found(options):
        raw = {
            "pipeline": {"name": "shop", "checkpoint": str(tmp_path / "checkpoint")},
            "source": {"type": "files", "path": str(tmp_path)},
            "sink": {"warehouse": root, "options": options},
        }
        path = tmp_path / "shop.yaml"
        path.write_text(yaml.safe_dump(raw))
        return {each.name: each for each in configuration.online(load_settings(path))}["warehouse"]

    assert found(s3_server.options).ok
    assert "conditional puts" in found(s3_server.options).finding
    refused = found({**s3_server.options, "s3.secret-key": "wrong"})
    assert not refused.ok
    assert refused.exit_code == ExitCode.ACCESS
    assert FileSystemCatalog(root, options=s3_server.options).file_io.list(root) == []


def test_an_aborted_upload_leaves_no_parts(s3_server, store, root):
    with pytest.raises(RuntimeError):
        fail_while_writing(store, f"{root}/big", 24 << 20)
    assert not store.exists(f"{root}/big")
    assert s3_server.open_uploads() == []


def test_the_command_line_reads_an_object_store(s3_server, root, capsys, monkeypatch):
    table = table_at(root, s3_server.options)
    table.new_commit("u").commit(prepared(table, [("+I", 1, "x")]), 0)
    option = f"s3.endpoint={s3_server.endpoint}"
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3_server.options["s3.access-key"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_server.options["s3.secret-key"])
    common = ["--store-option", option, "--json"]
    assert cli.main(["table", "ls", root, *common]) == 0
    assert json.loads(capsys.readouterr().out)["table"] == "db.t"
    assert cli.main(["table", "scan", root, "db.t", *common]) == 0
    assert json.loads(capsys.readouterr().out) == {"k": 1, "v": "x"}


PEER_SCRIPT = """
import pickle, sys
from pypaimon import CatalogFactory
warehouse, endpoint, key, secret, name = sys.argv[1:]
table = CatalogFactory.create({
    "warehouse": warehouse, "fs.s3.endpoint": endpoint, "fs.s3.accessKeyId": key,
    "fs.s3.accessKeySecret": secret, "fs.s3.region": "us-east-1",
}).get_table(name)
builder = table.new_read_builder()
found = builder.new_read().to_arrow(builder.new_scan().plan().splits())
sys.stdout.buffer.write(pickle.dumps(found.to_pylist()))
"""


def pypaimon_rows(server, root, name):
    keys = [server.options["s3.access-key"], server.options["s3.secret-key"]]
    done = subprocess.run(
        [peers_python(), "-W", "ignore", "-c", PEER_SCRIPT, root, server.endpoint, *keys, name],
        capture_output=True,
        timeout=120,
        check=False,
        env={**os.environ, "TZ": "UTC", "PYTHONPATH": ""},
    )
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    return pickle.loads(done.stdout)


@pytest.mark.interop
def test_pypaimon_reads_it(s3_server, root):
    table = table_at(root, s3_server.options)
    for identifier in range(3):
        rows = [("+I", identifier, "x"), ("+U", 0, str(identifier))]
        table.new_commit("u").commit(prepared(table, rows), identifier)
    found = pypaimon_rows(s3_server, root, "db.t")
    assert sorted((row["k"], row["v"]) for row in found) == rows_of(table)


@pytest.mark.spark
def test_the_daemon_fills_an_object_store(s3_server, root, spark, tmp_path):
    shop = DemoShop(11)
    write_archive(tmp_path / "events", shop.insert("customers", 300))
    write_archive(tmp_path / "events", shop.change("customers", 900))
    raw = {
        "pipeline": {"name": "shop", "checkpoint": str(tmp_path / "checkpoint")},
        "source": {"type": "files", "path": str(tmp_path / "events")},
        "sink": {
            "warehouse": root,
            "options": s3_server.options,
            "table.properties": {"bucket": "2"},
        },
        "metrics": {"enabled": False},
    }
    config = tmp_path / "shop.yaml"
    config.write_text(yaml.safe_dump(raw))
    assert "lakeward-test-secret" not in repr(load_settings(config))

    drain(config, spark)

    catalog = FileSystemCatalog(root, options=s3_server.options)
    (name,) = [
        f"{database}.{table}"
        for database in catalog.list_databases()
        for table in catalog.list_tables(database)
        if table == "customers"
    ]
    table = catalog.table(name)
    expected = shop.expected("customers")
    found = table.to_arrow().select(expected.column_names).sort_by("id")
    assert found.cast(expected.schema) == expected.sort_by("id")
    check_table(table)
    assert newest_record(catalog.file_io, root, "shop").note is not None
    assert not list(tmp_path.glob("warehouse*"))
