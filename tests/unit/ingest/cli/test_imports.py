# SPDX-License-Identifier: Apache-2.0
"""What commands import: a command that needs no Spark starts without it."""

import json
import subprocess
import sys

import pytest

from ingest.cli.commands import Group, Lazy
from ingest.cli.main import lakeward
from storage.catalog.catalog import FileSystemCatalog
from storage.format.metadata.schema import new_schema
from storage.format.types.types import parse_type

ENGINES = {"pyspark", "confluent_kafka", "pandas", "sqlalchemy", "pyarrow.dataset"}
ANALYTICS = {"pyarrow.compute", "pyarrow.parquet", "pyarrow.orc", "fastavro", "obstore"}

PROBE = """\
import json, sys
from ingest.cli.main import main
code = main(sys.argv[1:])
print(json.dumps({"code": code, "modules": sorted(sys.modules)}), file=sys.stderr)
"""


def imported(*arguments):
    """Exit code of a command in a process of its own, and the modules that it loaded."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *arguments], capture_output=True, text=True, check=True
    )
    found = json.loads(done.stderr.splitlines()[-1])
    return found["code"], set(found["modules"])


@pytest.fixture
def warehouse(tmp_path):
    catalog = FileSystemCatalog(str(tmp_path / "warehouse"))
    schema = new_schema(
        [("id", parse_type("BIGINT NOT NULL"))],
        primary_keys=["id"],
        partition_keys=[],
        options={"bucket": "1"},
        now_ms=0,
    )
    catalog.create_table("shop.items", schema)
    return str(tmp_path / "warehouse")


@pytest.fixture
def config(tmp_path, warehouse):
    path = tmp_path / "shop.yaml"
    path.write_text(
        "source: {type: kafka, bootstrap.servers: 'localhost:9092', topics: [shop.items]}\n"
        f"sink: {{warehouse: {warehouse}}}\n"
        "pipeline: {name: shop}\nmetrics: {enabled: false}\n"
    )
    return str(path)


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["status"],
        ["validate"],
        ["quarantine", "ls"],
        ["plan"],
        ["run"],
        ["verify"],
        ["table"],
        ["table", "ls"],
    ],
)
def test_help_loads_neither_engines_nor_file_formats(words):
    code, modules = imported(*words, "--help")
    assert code == 0
    assert not modules & (ENGINES | ANALYTICS)


def test_the_first_page_loads_no_command_at_all():
    _, modules = imported("--help")
    loaded = {name for name in modules if name.startswith("ingest.cli.")}
    assert loaded == {"ingest.cli.commands", "ingest.cli.main"}
    assert "pyarrow" not in modules


def test_tables_are_listed_without_engines_and_file_formats(warehouse):
    code, modules = imported("table", "ls", warehouse)
    assert code == 0
    assert not modules & (ENGINES | ANALYTICS)


@pytest.mark.parametrize("command", ["status", "validate"])
def test_looking_at_a_pipeline_loads_no_engine(config, command):
    code, modules = imported(command, "-c", config)
    assert code == 0
    assert not modules & ENGINES


def commands_below(group, *above):
    """Every command with its words, groups included."""
    context = lakeward.make_context("lakeward", [], resilient_parsing=True)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        yield (*above, name), found
        if isinstance(found, Group):
            yield from commands_below(found, *above, name)


def test_every_command_of_the_lists_exists_under_its_name_and_has_examples():
    found = dict(commands_below(lakeward))
    assert len(found) > 50
    for words, command in found.items():
        assert command.name == words[-1], words
        assert command.help, words
        assert f"  lakeward {words[0]}" in command.examples, words


def test_completing_the_name_of_a_command_loads_none(monkeypatch):
    def load(lazy, name):
        raise AssertionError(name)

    context = lakeward.make_context("lakeward", [], resilient_parsing=True)
    monkeypatch.setattr(Lazy, "load", load)
    offered = [item.value for item in lakeward.shell_complete(context, "")]
    assert offered == lakeward.list_commands(context)
    assert [item.value for item in lakeward.shell_complete(context, "re")] == [
        "resume",
        "reload",
        "resnapshot",
    ]
