# SPDX-License-Identifier: Apache-2.0
"""`lakeward run --once` over records that used to end it: names of columns that need escapes in
JSON, and a value nested deeper than any parser goes."""

import json

import pytest

from storage.catalog.catalog import FileSystemCatalog
from tests.e2e.daemon_process import drain
from tests.e2e.test_routing import config, event, write_topics

pytestmark = [pytest.mark.spark, pytest.mark.full]

NAMES = ['say "hi"', "back\\slash", "line\nfeed", "tab\t"]


def connect(name):
    return {"type": "int64" if name == "id" else "string", "optional": True, "field": name}


def with_block(line):
    record = json.loads(line)
    fields = [connect(name) for name in record["value"]["after"]]
    images = [
        {"type": "struct", "optional": True, "field": name, "fields": fields}
        for name in ("before", "after")
    ]
    block = {"type": "struct", "fields": images, "name": "shop.Envelope"}
    return json.dumps(record | {"value": {"schema": block, "payload": record["value"]}})


def row(number, name="v"):
    return {"id": number, name: f"value {number}"}


def found(directory, name):
    rows = FileSystemCatalog(str(directory / "lake")).table(name).to_arrow().to_pylist()
    return {row["id"]: {n: v for n, v in row.items() if v is not None} for row in rows}


def test_odd_names_are_stored_and_deep_values_are_bad_while_other_tables_go_on(spark, tmp_path):
    deep = event("crm", "people", "c", row(90), 90).replace('"value 90"', "[" * 1_500 + "]" * 1_500)
    bare = [row(number, name) for number, name in enumerate(NAMES, 1)]
    items = [event("crm", "people", "c", each, each["id"]) for each in bare]
    block = [row(number, name) for number, name in enumerate(NAMES, 11)]
    blocks = [with_block(event("crm", "cards", "c", each, each["id"])) for each in block]
    others = [event("inventory", "items", "c", row(number), number) for number in range(3)]
    write_topics(
        tmp_path / "events",
        {
            "shop.crm.people": [items[0], deep, *items[1:]],
            "shop.crm.cards": blocks,
            "shop.inventory.items": others,
        },
    )

    drain(config(tmp_path), spark)

    assert found(tmp_path, "crm.people") == {each["id"]: each for each in bare}
    assert found(tmp_path, "crm.cards") == {each["id"]: each for each in block}
    assert found(tmp_path, "inventory.items") == {number: row(number) for number in range(3)}
    held = FileSystemCatalog(str(tmp_path / "lake")).table("lakeward._quarantine").to_arrow()
    assert [(each["topic"], each["error_class"]) for each in held.to_pylist()] == [
        ("shop.crm.people", "json")
    ]
