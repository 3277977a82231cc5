# SPDX-License-Identifier: Apache-2.0
"""Names of the source that Lakeward or the table format needs, and names in another letter case."""

import json

import pytest

from storage.catalog.catalog import FileSystemCatalog
from tests.e2e.daemon_process import drain, files_config

pytestmark = [pytest.mark.spark]

OURS = [
    ("lakeward", "_quarantine"),
    ("lakeward", "_schema_history"),
    ("Lakeward", "_QUARANTINE"),
    ("sys", "t"),
    ("shop", "SYS$AUDIT"),
    ("shop", "my.dotted.table"),
    ("shop", " "),
    ("..", "t"),
]


def line(database, table, row):
    source = {"name": "srv", "db": database, "table": table, "ts_ms": 1}
    value = {"before": None, "after": row, "source": source, "op": "c"}
    key = {name: each for name, each in row.items() if name.lower() == "id"}
    return json.dumps({"key": key, "value": value})


def publish(directory, topic, number, *lines):
    folder = directory / "events" / topic
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{number}.jsonl").write_text("\n".join(lines) + "\n")


def rows(directory, name):
    table = FileSystemCatalog(str(directory / "warehouse")).table(name)
    return sorted(table.to_arrow().to_pylist(), key=str)


def test_sources_named_like_our_tables_stop_no_run_and_mix_with_nothing(spark, tmp_path):
    config = files_config(tmp_path)
    for number in (1, 2):
        publish(tmp_path, "good", number, line("shop", "good", {"id": number}))
        for place, (database, table) in enumerate(OURS):
            publish(
                tmp_path, f"odd{place}", number, line(database, table, {"id": number, "v": "x"})
            )
        drain(config, spark)
        assert rows(tmp_path, "shop.good") == [{"id": each} for each in range(1, number + 1)]
        bad = rows(tmp_path, "lakeward._quarantine")
        assert len(bad) == number * len(OURS)
        assert {row["error_class"] for row in bad} == {"table_name"}
        assert all("`route`" in row["error"] for row in bad)
        history = rows(tmp_path, "lakeward._schema_history")
        assert {row["table"] for row in history} == {"shop.good"}
        assert not any("v" in row or "id" in row for row in (*bad, *history))
    catalog = FileSystemCatalog(str(tmp_path / "warehouse"))
    assert catalog.list_databases() == ["lakeward", "shop"]
    assert catalog.list_tables("shop") == ["good"]


@pytest.mark.full
def test_a_column_that_changes_its_case_between_runs_is_one_column(spark, tmp_path):
    config = files_config(tmp_path)
    first = [line("shop", "t", {"ID": 1, "NAME": "a"}), line("shop", "t", {"ID": 2, "name": "b"})]
    publish(tmp_path, "t", 1, *first)
    drain(config, spark)
    publish(tmp_path, "t", 2, line("shop", "t", {"id": 3, "name": "c"}))
    publish(tmp_path, "t", 3, line("shop", "t", {"id": 1, "Name": "A"}))
    drain(config, spark)
    assert rows(tmp_path, "shop.t") == [
        {"ID": 1, "NAME": "A"},
        {"ID": 2, "NAME": "b"},
        {"ID": 3, "NAME": "c"},
    ]
    assert rows(tmp_path, "lakeward._quarantine") == []


@pytest.mark.full
def test_forbidden_names_are_replaced_when_asked_and_never_mix(spark, tmp_path):
    config = files_config(tmp_path)
    config.write_text(config.read_text() + "\nsink.names.sanitize: true\n")
    for number in (1, 2):
        publish(tmp_path, "a", number, line("shop", "SYS$AUDIT", {"id": number, "v": "$"}))
        drain(config, spark)
        publish(tmp_path, "b", number, line("shop", "SYS.AUDIT", {"id": number, "v": "."}))
        drain(config, spark)
    assert rows(tmp_path, "shop.SYS_AUDIT") == [{"id": 1, "v": "$"}, {"id": 2, "v": "$"}]
    bad = rows(tmp_path, "lakeward._quarantine")
    assert [(row["topic"], row["error_class"]) for row in bad] == [
        ("b", "source_table_conflict")
    ] * 2
