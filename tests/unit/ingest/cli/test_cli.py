# SPDX-License-Identifier: Apache-2.0
import csv
import io
import json
import logging
from decimal import Decimal

import pyarrow as pa
import pytest

from ingest.cli import main as cli
from ingest.daemon import configuration, daemon
from ingest.errors import AccessDeniedError, ExitCode
from storage.catalog.catalog import FileSystemCatalog
from storage.errors import FencedError
from storage.format.metadata.schema import new_schema
from storage.format.types.types import parse_type
from tests.table_kit import write


@pytest.fixture(autouse=True)
def quiet_logs():
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    yield
    root.handlers[:] = before
    root.setLevel(level)


@pytest.fixture
def config(tmp_path):
    (tmp_path / "events").mkdir()
    path = tmp_path / "lakeward.yaml"
    path.write_text(
        f"source: {{type: files, path: {tmp_path / 'events'}}}\n"
        f"sink: {{warehouse: {tmp_path / 'warehouse'}}}\n"
        "pipeline: {name: shop}\nmetrics: {enabled: false}\n"
    )
    return str(path)


@pytest.fixture(autouse=True)
def no_spark(monkeypatch):
    monkeypatch.setattr("ingest.daemon.spark_start.SparkStart", lambda settings: None)


@pytest.fixture
def runs(monkeypatch):
    calls = []

    def run(settings, *, once, reread, take_over, settings_lines, starting):
        calls.append((settings, once))
        return 75

    monkeypatch.setattr(daemon, "run", run)
    return calls


def test_run_hands_over_settings_and_returns_the_daemons_code(config, runs):
    code = cli.main(["run", "-c", config, "--once", "--set", "pipeline.trigger.interval=5s"])
    assert code == 75
    ((settings, once),) = runs
    assert once
    assert settings.pipeline.name == "shop"
    assert settings.pipeline.trigger_interval_s == 5.0


def test_validate_prints_what_will_run_and_where_it_comes_from(config, capsys):
    assert cli.main(["validate", "-c", config, "--set", "log.level=debug"]) == 0
    out = capsys.readouterr().out
    lines = {line.split()[0]: line.split() for line in out.splitlines() if "  " in line}
    assert lines["pipeline.name"] == ["pipeline.name", "shop", "file"]
    assert lines["log.level"] == ["log.level", "debug", "flag"]
    assert lines["pipeline.trigger.interval"][-2:] == ["30s", "default"]
    assert out.endswith("\nvalid\n")


def test_validate_of_a_wrong_key_says_what_was_meant(config, capsys):
    code = cli.main(["validate", "-c", config, "--set", "pipeline.triger.interval=5s"])
    assert code == ExitCode.CONFIG
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "unknown setting (key = pipeline.triger.interval)" in captured.err
    assert "did you mean `pipeline.trigger.interval`?" in captured.err


def test_validate_json_is_one_document(config, capsys):
    assert cli.main(["validate", "-c", config, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["valid"] is True
    assert document["settings"]["pipeline.name"] == {"value": "shop", "from": "file"}
    assert document["checks"][0]["ok"] is True


def test_validate_check_fails_with_the_code_of_the_first_failure(config, capsys, monkeypatch):
    denied = configuration.Finding("source", ok=False, finding="refused", exit_code=ExitCode.ACCESS)
    monkeypatch.setattr(configuration, "online", lambda settings: [denied])
    assert cli.main(["validate", "-c", config, "--check"]) == 77
    out = capsys.readouterr().out
    assert "FAIL  source: refused" in out
    assert "not ready: source (exit code 77)" in out


def test_missing_configuration_file(capsys, tmp_path):
    assert cli.main(["run", "-c", str(tmp_path / "none.yaml")]) == 78
    assert "configuration file does not exist" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (FencedError("another process owns the stream"), 75),
        (AccessDeniedError("refused"), 77),
        (OSError(28, "No space left on device"), 69),
        (KeyboardInterrupt(), 130),
    ],
)
def test_errors_become_exit_codes(config, monkeypatch, capsys, error, code):
    def run(settings, *, once, reread, take_over, settings_lines, starting):
        raise error

    monkeypatch.setattr(daemon, "run", run)
    assert cli.main(["run", "-c", config]) == code
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [[], ["fly"], ["run"], ["table"], ["run", "-c", "x", "--set", "nonsense"]],
)
def test_wrong_command_lines_are_usage_errors(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    assert caught.value.code == ExitCode.USAGE


def test_help_shows_examples_and_exit_codes(capsys):
    assert cli.main(["--help"]) == 0
    out = capsys.readouterr().out
    assert "lakeward validate -c shop.yaml --check" in out
    for code in ExitCode:
        assert f"{int(code):>3}  {code.meaning}" in out


def test_version_names_what_it_runs_on(capsys):
    assert cli.main(["version", "--json"]) == 0
    versions = json.loads(capsys.readouterr().out)
    assert versions["pyarrow"] == pa.__version__
    assert {"lakeward", "python", "pyspark", "paimon format"} <= set(versions)


@pytest.fixture
def warehouse(tmp_path):
    catalog = FileSystemCatalog(str(tmp_path / "warehouse"))
    catalog.create_database("shop")
    schema = new_schema(
        [
            ("id", parse_type("BIGINT NOT NULL")),
            ("name", parse_type("STRING")),
            ("price", parse_type("DECIMAL(10, 2)")),
        ],
        primary_keys=["id"],
        partition_keys=[],
        options={"bucket": "1", "write-only": "true"},
        now_ms=1_767_225_600_000,
    )
    catalog.create_table("shop.items", schema)
    catalog.create_table("shop.empty", schema)
    kettle, lamp = ("+I", 1, "kettle", Decimal("1.50")), ("+I", 2, "lamp, big", Decimal(20))
    table = catalog.table("shop.items")
    write(table, 0, [kettle, lamp, ("+I", 3, None, None)], user="tests")
    changed = [("+U", 2, "lamp", Decimal(21)), ("-D", 3, None, None)]
    write(table, 1, changed, user="tests")
    return str(tmp_path / "warehouse")


def lines_of(capsys):
    return capsys.readouterr().out.splitlines()


def test_ls_shows_tables_with_their_newest_snapshot(warehouse, capsys):
    assert cli.main(["table", "ls", warehouse, "--json"]) == 0
    rows = {row["table"]: row for row in map(json.loads, lines_of(capsys))}
    assert rows["shop.items"]["snapshot"] == 2
    assert rows["shop.empty"]["snapshot"] is None
    assert cli.main(["table", "ls", warehouse, "nowhere"]) == 78


def test_scan_merges_and_prints_an_aligned_table(warehouse, capsys):
    assert cli.main(["table", "scan", warehouse, "shop.items"]) == 0
    assert lines_of(capsys) == [
        "id  name    price",
        "--  ------  -----",
        " 1  kettle   1.50",
        " 2  lamp    21.00",
        "(2 rows)",
    ]


def test_scan_filters_projects_limits_and_travels(warehouse, capsys):
    base = ["table", "scan", warehouse, "shop.items", "--json"]
    assert cli.main([*base, "--snapshot", "1", "--filter", "id > 1", "--columns", "name,id"]) == 0
    assert [json.loads(line) for line in lines_of(capsys)] == [
        {"name": "lamp, big", "id": 2},
        {"name": None, "id": 3},
    ]
    assert cli.main([*base, "--limit", "1"]) == 0
    assert len(lines_of(capsys)) == 1


def test_scan_as_csv(warehouse, capsys):
    assert cli.main(["table", "scan", warehouse, "shop.items", "--snapshot", "1", "--csv"]) == 0
    rows = list(csv.reader(io.StringIO(capsys.readouterr().out)))
    assert rows == [
        ["id", "name", "price"],
        ["1", "kettle", "1.50"],
        ["2", "lamp, big", "20.00"],
        ["3", "", ""],
    ]


@pytest.mark.parametrize(
    "extra",
    [
        ["--columns", "id,nme"],
        ["--filter", "id >"],
        ["--filter", "nme = 1"],
        ["--snapshot", "99"],
    ],
)
def test_scan_of_what_is_not_there_is_an_error_without_trace(warehouse, capsys, extra):
    assert cli.main(["table", "scan", warehouse, "shop.items", *extra]) == 78
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("lakeward: ")


def test_missing_table_is_said_in_json_too(warehouse, capsys):
    assert cli.main(["table", "scan", warehouse, "shop.nothing", "--json"]) == 78
    assert json.loads(capsys.readouterr().err)["error"] == "NotFoundError"


def test_empty_table(warehouse, capsys):
    for verb in ("scan", "files", "snapshots", "show"):
        assert cli.main(["table", verb, warehouse, "shop.empty"]) == 0
    assert "no snapshot" in capsys.readouterr().out


def test_files_show_levels_rows_deletes_keys_and_sequences(warehouse, capsys):
    assert cli.main(["table", "files", warehouse, "shop.items", "--json"]) == 0
    newer, older = (json.loads(line) for line in lines_of(capsys))
    assert older["level"] == newer["level"] == 0
    assert (older["rows"], older["deletes"]) == (3, 0)
    assert (newer["rows"], newer["deletes"]) == (2, 1)
    assert (older["min_key"], older["max_key"]) == (1, 3)
    assert (newer["min_sequence"], newer["max_sequence"]) == (3, 4)
    assert older["size"] > 0
    assert "partition" not in older


def test_snapshots_are_listed_oldest_first(warehouse, capsys):
    assert cli.main(["table", "snapshots", warehouse, "shop.items", "--json"]) == 0
    rows = [json.loads(line) for line in lines_of(capsys)]
    assert [(row["id"], row["kind"], row["identifier"]) for row in rows] == [
        (1, "APPEND", 0),
        (2, "APPEND", 1),
    ]
    assert rows[0]["user"] == "tests"
    assert cli.main(["table", "snapshots", warehouse, "shop.items", "--limit", "1"]) == 0
    assert lines_of(capsys)[-1].split()[0] == "2"


def test_show_is_readable_and_complete(warehouse, capsys):
    assert cli.main(["table", "show", warehouse, "shop.items"]) == 0
    out = capsys.readouterr().out
    assert "primary key   id" in out
    assert "DECIMAL(10, 2)" in out
    assert cli.main(["table", "show", warehouse, "shop.items", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["primary_key"] == ["id"]
    assert document["columns"][0] == {"id": 0, "name": "id", "type": "BIGINT NOT NULL"}
    assert document["levels"][0]["level"] == 0
    assert document["levels"][0]["rows"] == 5
    assert document["options"]["bucket"] == "1"
