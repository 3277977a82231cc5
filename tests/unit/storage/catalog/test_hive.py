# SPDX-License-Identifier: Apache-2.0
"""What is particular to the Hive catalog; what it shares with the others is in test_contract."""

import concurrent.futures
import dataclasses
import json
import pathlib
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest

from storage.catalog.catalog import Catalog
from storage.catalog.hive import HiveCatalog, HiveLock, _HiveEnvironment, from_hive, to_hive
from storage.clients.hive_client import HiveMetastore, thrift
from storage.errors import (
    CommitConflictError,
    InvalidOptionError,
    InvalidRequestError,
    NotFoundError,
    StorageUnavailableError,
    UnsupportedFeatureError,
)
from storage.format.metadata.schema import new_schema
from storage.format.metadata.schema_changes import AddColumn, DropColumn, RemoveOption, SetOption
from storage.format.types.types import parse_type
from tests.e2e.availability import had
from tests.e2e.hive_metastore import hive_metastore
from tests.free_ports import free_port
from tests.table_kit import make_table, rows_of, write
from tests.unit.storage.catalog.racer import COLUMNS, COMMITS

INT = parse_type("INT")
DEAD = {"metastore": "hive", "uri": f"thrift://127.0.0.1:{free_port()}"}


def schema(**options):
    return new_schema(
        [("k", INT), ("v", INT)], primary_keys=["k"], options={"bucket": "1", **options}
    )


def partitioned(**options):
    columns = [("p", parse_type("STRING")), ("k", INT), ("v", INT)]
    given = {"bucket": "1", "metastore.partitioned-table": "true", **options}
    return new_schema(columns, primary_keys=["p", "k"], partition_keys=["p"], options=given)


# ---- without a metastore


@pytest.mark.parametrize(
    ("ours", "hive"),
    [
        *((name, name.lower()) for name in ("BOOLEAN", "TINYINT", "INT", "BIGINT", "DATE")),
        ("DECIMAL(20, 4)", "decimal(20,4)"),
        ("CHAR(3)", "char(3)"),
        ("VARCHAR(70)", "varchar(70)"),
        ("STRING", "string"),
        ("BYTES", "binary"),
        ("TIMESTAMP(6)", "timestamp"),
        ("TIMESTAMP(6) WITH LOCAL TIME ZONE", "timestamp with local time zone"),
        ("ARRAY<MAP<STRING, DECIMAL(5, 2)>>", "array<map<string,decimal(5,2)>>"),
        ("MAP<INT, ARRAY<INT>>", "map<int,array<int>>"),
    ],
)
def test_types_go_there_and_back(ours, hive):
    assert to_hive(parse_type(ours)) == hive
    assert from_hive(hive) == parse_type(ours)


@pytest.mark.parametrize(
    ("ours", "hive", "back"),
    [
        ("INT NOT NULL", "int", "INT"),
        ("TIME(3)", "string", "STRING"),
        ("TIMESTAMP(9)", "timestamp", "TIMESTAMP(6)"),
        ("CHAR(256)", "string", "STRING"),
        ("VARCHAR(65536)", "string", "STRING"),
        ("BINARY(4)", "binary", "BYTES"),
        ("MULTISET<INT>", "map<int,int>", "MAP<INT, INT>"),
    ],
)
def test_types_that_hive_does_not_know_exactly(ours, hive, back):
    assert to_hive(parse_type(ours)) == hive
    assert from_hive(hive) == parse_type(back)


def test_rows_of_hive():
    found = from_hive("struct<a:int,b:array<struct<c:varchar(5)>>>")
    assert to_hive(found) == "struct<a:int,b:array<struct<c:varchar(5)>>>"
    assert [field.name for field in found.fields] == ["a", "b"]


@pytest.mark.parametrize(
    "text",
    ["uniontype<int,string>", "interval_day_time", "map<int>", "", "array<int", "struct<int>", "<"],
)
def test_types_of_hive_without_counterpart(text):
    with pytest.raises(UnsupportedFeatureError, match="no Paimon type"):
        from_hive(text)


@pytest.mark.parametrize(
    ("options", "error", "word"),
    [
        ({"uri": ""}, InvalidOptionError, "thrift://host:9083"),
        ({"uri": "jdbc:sqlite:/x"}, InvalidOptionError, "thrift://host:9083"),
        ({"hive-conf-dir": "/nowhere"}, InvalidOptionError, "hive-site.xml"),
        ({"table.type": "virtual"}, InvalidOptionError, "managed or external"),
        ({"lock.enabled": "perhaps"}, InvalidOptionError, "lock.enabled"),
        ({"location-in-property": "true"}, InvalidOptionError, "location-in-properties"),
        ({"format-table.enabled": "true"}, UnsupportedFeatureError, "format-table.enabled"),
        ({"metastore.client.class": "a.B"}, UnsupportedFeatureError, "metastore.client.class"),
    ],
)
def test_options_that_are_refused(tmp_path, options, error, word):
    with pytest.raises(error) as caught:
        Catalog.open(str(tmp_path), {**DEAD, **options})
    assert word in str(caught.value)


def test_options_without_effect_are_accepted(tmp_path):
    more = {"client-pool-size": "5", "client-pool-cache.keys": "ugi", "hadoop-conf-dir": "/etc"}
    Catalog.open(str(tmp_path), {**DEAD, **more, "format-table.enabled": "false"})


def test_a_metastore_that_does_not_answer(tmp_path):
    catalog = Catalog.open(str(tmp_path), DEAD)
    with pytest.raises(StorageUnavailableError, match="does not answer") as caught:
        catalog.list_databases()
    assert "uri" in caught.value.hint


def site(tmp_path, **properties):
    rows = "".join(
        f"<property><name>{key.replace('_', '.')}</name><value>{value}</value></property>"
        for key, value in properties.items()
    )
    (tmp_path / "hive-site.xml").write_text(f"<configuration>{rows}</configuration>")
    return {"hive-conf-dir": str(tmp_path)}


def test_the_warehouse_of_a_hive_configuration(tmp_path):
    place = {"hive_metastore_warehouse_dir": f"{tmp_path}/w"}
    options = site(tmp_path, hive_metastore_uris="thrift://127.0.0.1:1", **place)
    opened = Catalog.open("", {"metastore": "hive", **options})
    assert opened.warehouse.endswith(f"{tmp_path}/w")
    given = Catalog.open(str(tmp_path / "other"), {"metastore": "hive", **options})
    assert given.warehouse.endswith(f"{tmp_path}/other")
    with pytest.raises(InvalidRequestError, match="location is empty"):
        Catalog.open("", DEAD)


def test_the_metastore_of_a_hive_configuration(tmp_path):
    options = site(tmp_path, hive_metastore_uris="thrift://one:9083, thrift://[::1]:9084")
    found = HiveMetastore.of(options)
    assert found.addresses == (("one", 9083), ("::1", 9084))
    assert found.timeout_ms == 600_000
    options = site(tmp_path, hive_metastore_uris="x", hive_metastore_client_socket_timeout="20s")
    found = HiveMetastore.of({**options, "uri": "thrift://two:1"})
    assert (found.addresses, found.timeout_ms) == ((("two", 1),), 20_000)
    with pytest.raises(UnsupportedFeatureError, match="Kerberos"):
        HiveMetastore.of({**site(tmp_path, hive_metastore_sasl_enabled="true"), **DEAD})


# ---- with one


@pytest.fixture(scope="module")
def server():
    with had(hive_metastore(), "Hive metastore") as found:
        yield found


@pytest.fixture
def opened(server, tmp_path):
    def open_catalog(**more):
        options = {"metastore": "hive", "uri": server.uri, "lock-check-max-sleep": "50 ms"}
        return Catalog.open(str(tmp_path / "w"), {**options, **more})

    yield open_catalog
    left = open_catalog()
    with HiveMetastore.of(left.options).connect() as client:
        for name in client.get_all_databases():
            if name != "default":
                client.drop_database(name, False, True)


@pytest.fixture
def catalog(opened):
    made = opened()
    made.create_database("db")
    return made


def entry(catalog, name):
    with HiveMetastore.of(catalog.options).connect() as client:
        return client.get_table(*name.split("."))


def columns(catalog, name):
    return [column.name for column in entry(catalog, name).sd.cols]


def foreign(catalog, name):
    """Make a table that is not Paimon's."""
    catalog.create_table("db.model", schema())
    made = entry(catalog, "db.model")
    catalog.drop_table("db.model")
    made.tableName, made.parameters = name, {}
    made.sd.location = None
    made.sd.inputFormat = "org.apache.hadoop.mapred.TextInputFormat"
    with HiveMetastore.of(catalog.options).connect() as client:
        client.create_table(made)


@pytest.mark.full
def test_tables_of_other_kinds_are_left_alone(catalog):
    foreign(catalog, "text")
    assert catalog.list_tables("db") == []
    assert not catalog.exists("db.text")
    with pytest.raises(InvalidRequestError, match="not Paimon's"):
        catalog.create_table("db.text", schema())
    with pytest.raises(NotFoundError):
        catalog.table("db.text")
    with pytest.raises(NotFoundError):
        catalog.drop_table("db.text")
    catalog.create_table("db.t", schema())
    with pytest.raises(InvalidRequestError, match="not Paimon's"):
        catalog.drop_database("db", cascade=True)
    assert entry(catalog, "db.text").tableName == "text"


@pytest.mark.full
def test_a_database_chooses_where_its_tables_lie(catalog, opened, tmp_path):
    place = tmp_path / "elsewhere"
    catalog.create_database("other", properties={"location": f"file:{place}"})
    write(catalog.create_table("other.t", schema()), 1, [("+I", 1, 1)])
    assert (place / "t" / "snapshot").is_dir()
    assert opened().database("other").properties["location"] == f"file:{place}"
    catalog.rename_table("other.t", "db.t")
    assert rows_of(opened().table("db.t")) == [(1, 1)]
    assert not (place / "t").exists()
    assert entry(catalog, "db.t").sd.location == f"file:{tmp_path}/w/db.db/t"
    with pytest.raises(UnsupportedFeatureError, match="cannot be changed"):
        catalog.alter_database("other", {"location": "file:/x"})


@pytest.mark.full
def test_files_of_external_tables_stay(opened):
    catalog = opened(**{"table.type": "external"})
    catalog.create_database("db")
    table = catalog.create_table("db.t", schema())
    write(table, 1, [("+I", 1, 1)])
    assert entry(catalog, "db.t").tableType == "EXTERNAL_TABLE"
    assert entry(catalog, "db.t").parameters["EXTERNAL"] == "TRUE"
    catalog.rename_table("db.t", "db.u")
    assert catalog.table_path("db.u") == table.layout.root
    assert rows_of(catalog.table("db.u")) == [(1, 1)]
    catalog.drop_table("db.u")
    assert not catalog.exists("db.u")
    assert rows_of(table) == [(1, 1)]
    catalog.repair_table("db.t")
    assert rows_of(catalog.table("db.t")) == [(1, 1)]


@pytest.mark.full
def test_locations_in_properties(opened, tmp_path):
    catalog = opened(**{"location-in-properties": "true"})
    catalog.create_database("db")
    root = f"file:{tmp_path}/w/db.db"
    assert catalog.database("db").properties["paimon_location"] == root
    write(catalog.create_table("db.t", partitioned()), 1, [("+I", "a", 1, 1)])
    assert entry(catalog, "db.t").parameters["paimon_location"] == f"{root}/t"
    assert tmp_path.as_posix() not in (entry(catalog, "db.t").sd.location or "")
    assert catalog.partitions("db.t") == [{"p": "a"}]
    catalog.rename_table("db.t", "db.u")
    assert rows_of(opened().table("db.u")) == [("a", 1, 1)]
    catalog.drop_database("db", cascade=True)
    assert not pathlib.Path(f"{tmp_path}/w/db.db").exists()


@pytest.mark.full
def test_the_entry_follows_the_schema(catalog):
    table = catalog.create_table("db.t", schema(**{"snapshot.num-retained.max": "40"}))
    table.alter([AddColumn("w", parse_type("STRING"))])
    catalog.alter_table("db.t", [RemoveOption("snapshot.num-retained.max"), SetOption("a.b", "1")])
    assert columns(catalog, "db.t") == ["k", "v", "w"]
    parameters = entry(catalog, "db.t").parameters
    assert "snapshot.num-retained.max" not in parameters
    assert {"a.b": "1", "primary-key": "k", "bucket": "1"}.items() <= parameters.items()


@pytest.mark.full
def test_without_all_properties_only_those_for_hive_are_there(opened):
    catalog = opened(**{"sync-all-properties": "false"})
    catalog.create_database("db")
    catalog.create_table("db.t", schema(**{"hive.note": "1"}))
    parameters = entry(catalog, "db.t").parameters
    assert parameters["note"] == "1"
    assert "bucket" not in parameters
    assert "hive.note" not in parameters


@pytest.mark.full
def test_a_change_that_hive_refuses_leaves_the_table_as_it_was(catalog):
    columns_of = [("k", INT), ("s", parse_type("STRING")), ("v", INT)]
    options = {"bucket": "1"}
    table = catalog.create_table(
        "db.t", new_schema(columns_of, primary_keys=["k"], options=options)
    )
    write(table, 1, [("+I", 1, "a", 1)])
    with pytest.raises(InvalidRequestError, match="metastore refuses"):
        catalog.alter_table("db.t", [DropColumn("s")])  # Hive compares types by position
    assert catalog.table("db.t").schema.id == 0
    write(catalog.table("db.t"), 2, [("+I", 2, "b", 2)])
    assert rows_of(catalog.table("db.t")) == [(1, "a", 1), (2, "b", 2)]
    catalog.alter_table("db.t", [AddColumn("w", INT)])
    assert columns(catalog, "db.t") == ["k", "s", "v", "w"]


@pytest.mark.full
def test_several_changes_at_once_end_in_the_newest_columns(catalog, opened):
    catalog.create_table("db.t", schema())
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(
            pool.map(
                lambda number: opened().alter_table("db.t", [AddColumn(f"c{number}", INT)]),
                range(8),
            )
        )
    assert columns(catalog, "db.t") == list(catalog.table("db.t").schema.field_names)


@pytest.mark.full
def test_partitions_come_and_go_with_commits(catalog):
    table = catalog.create_table("db.t", partitioned())
    assert [column.name for column in entry(catalog, "db.t").partitionKeys] == ["p"]
    assert columns(catalog, "db.t") == ["k", "v"]
    write(table, 1, [("+I", "a", 1, 1), ("+I", "b", 1, 1)])
    write(table, 2, [("+I", "c/d", 1, 1), ("+I", "a", 2, 1)])
    assert sorted(each["p"] for each in catalog.partitions("db.t")) == ["a", "b", "c/d"]
    catalog.table("db.t").drop_partitions([{"p": "b"}])
    assert sorted(each["p"] for each in catalog.partitions("db.t")) == ["a", "c/d"]
    catalog.alter_table("db.t", [AddColumn("w", INT)])
    with HiveMetastore.of(catalog.options).connect() as client:
        found = client.get_partitions("db", "t", 10)
    assert {tuple(column.name for column in each.sd.cols) for each in found} == {("k", "v", "w")}


@pytest.mark.full
def test_a_commit_stands_when_partitions_cannot_be_entered(catalog, caplog):
    table = catalog.create_table("db.t", partitioned())
    with HiveMetastore.of(catalog.options).connect() as client:
        client.drop_table("db", "t", False)
    write(table, 1, [("+I", "a", 1, 1)])
    catalog.repair_table("db.t")
    assert catalog.partitions("db.t") == [{"p": "a"}]
    dead = type(table.environment)(HiveCatalog.of(catalog.warehouse, DEAD), "db.t")
    write(dataclasses.replace(catalog.table("db.t"), environment=dead), 2, [("+I", "b", 1, 1)])
    assert "not added" in caplog.text
    assert rows_of(catalog.table("db.t")) == [("a", 1, 1), ("b", 1, 1)]
    catalog.repair_catalog()
    assert sorted(each["p"] for each in catalog.partitions("db.t")) == ["a", "b"]


@pytest.mark.full
@pytest.mark.parametrize("name", ["NoSuchObjectException", "AlreadyExistsException"])
def test_a_commit_stands_when_another_changes_the_entry_at_the_same_time(tmp_path, name):
    def add_partitions(identifier, specs):
        raise getattr(thrift(), name)("meanwhile")

    stub = SimpleNamespace(add_partitions=add_partitions)
    options = {"bucket": "1", "metastore.partitioned-table": "true"}
    columns = (("p", "STRING"), ("k", "BIGINT"))
    table = make_table(
        tmp_path, columns=columns, keys=("p", "k"), partitions=("p",), options=options
    )
    table = dataclasses.replace(table, environment=_HiveEnvironment(stub, "db.t"))
    write(table, 1, [("+I", "a", 1)])
    assert rows_of(table) == [("a", 1)]


def test_done_partitions_are_marked_in_the_metastore(catalog):
    actions = {"partition.mark-done-action": "done-partition,mark-event"}
    table = catalog.create_table("db.t", partitioned()).with_options(actions)
    write(table, 1, [("+I", "a", 1, 1), ("+I", "b", 1, 1)])
    assert table.mark_partitions_done([{"p": "a"}]) == ["p=a"]
    assert sorted(each["p"] for each in catalog.partitions("db.t")) == ["a", "a.done", "b"]
    event = thrift().PartitionEventType.LOAD_DONE
    with HiveMetastore.of(catalog.options).connect() as client:
        marked = [client.isPartitionMarkedForEvent("db", "t", {"p": p}, event) for p in "ab"]
    assert marked == [True, False]


@pytest.mark.full
def test_tags_as_partitions_are_refused(catalog):
    with pytest.raises(UnsupportedFeatureError, match=r"metastore\.tag-to-partition"):
        write(
            catalog.create_table("db.t", schema(**{"metastore.tag-to-partition": "dt"})),
            1,
            [("+I", 1, 1)],
        )


@pytest.mark.full
def test_a_lock_is_waited_for_and_given_up(catalog):
    options = {**catalog.options, "lock-acquire-timeout": "1 s"}
    metastore = HiveMetastore.of(options)
    one, two = (HiveLock("db.t", options, metastore) for _ in range(2))
    token = one.acquire()
    with pytest.raises(CommitConflictError, match="lock-acquire-timeout"):
        two.acquire()
    with HiveLock("db.other", options, metastore).hold():
        pass
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(two.acquire)
        one.release(token)
        two.release(waiting.result())


@pytest.mark.full
def test_two_processes_lose_nothing_under_the_lock(catalog, tmp_path):
    catalog.drop_database("db")
    options = {**catalog.options, "lock.enabled": "true"}
    warehouse = options.pop("warehouse")
    command = [sys.executable, "-m", "tests.unit.storage.catalog.racer", warehouse]
    command.append(json.dumps({"metastore": "hive", **options}))
    root = pathlib.Path(__file__).parents[4]
    racers = [
        subprocess.Popen([*command, str(number)], cwd=root, stderr=subprocess.PIPE, text=True)
        for number in (1, 2)
    ]
    for racer in racers:
        _, errors = racer.communicate(timeout=300)
        assert racer.returncode == 0, errors[-2000:]
    table = catalog.table("db.t")
    assert sorted(row[0] for row in rows_of(table)) == [
        1000 * number + commit for number in (1, 2) for commit in range(COMMITS)
    ]
    added = [f"c{number}_{column}" for number in (1, 2) for column in range(COLUMNS)]
    assert sorted(table.schema.field_names[2:]) == added
    assert columns(catalog, "db.t") == list(table.schema.field_names)
    kept = [f"own_{n}_{c}_renamed" for n in (1, 2) for c in range(1, COLUMNS)]
    assert catalog.list_tables("db") == sorted([*kept, "t"])


@pytest.mark.full
def test_the_guide(opened, server, tmp_path, capsys):
    names = {"WAREHOUSE": str(tmp_path / "w"), "METASTORE": server.uri}
    page = pathlib.Path(__file__).parents[4] / "docs" / "guides" / "hive.md"
    made, partitions, _ = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    for example in (made, partitions):
        exec(example, names)
    shown = capsys.readouterr().out.splitlines()
    assert shown == [
        str({"owner": "etl", "location": f"file:{tmp_path}/w/shop.db"}),
        "[]",
    ]
