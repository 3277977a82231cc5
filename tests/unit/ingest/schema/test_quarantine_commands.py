# SPDX-License-Identifier: Apache-2.0
"""`lakeward quarantine ls|show|drop`, the table's columns, and the hints of the error classes."""

import json
import re
from pathlib import Path

import pytest

from ingest.cli import main as cli
from ingest.daemon.requests.request_client import request_files
from ingest.pipeline.quarantine import (
    BAD_CLASSES,
    Choice,
    bad_class,
    hex_dump,
    read_quarantine,
    record_text,
)
from ingest.schema.new_tables import missing_columns, quarantine_schema
from ingest.state.table_registry import TableRegistry
from storage.clock import ManualClock
from storage.errors import InvalidRequestError
from storage.format.metadata.schema import new_schema
from tests.unit.ingest.simulated_stream import QUARANTINE, SimulatedStream, event

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture
def stream(tmp_path, monkeypatch):
    stream = SimulatedStream(tmp_path, monkeypatch)
    for record in (
        event("orders", 1, 1),
        (b'{"id":1}', b"{broken"),
        event("orders", 7, [1, {}]),
        event("orders", 8, [2, {}]),
        (None, b"\xff\xfe raw"),
    ):
        stream.topics.add("a", 0, *record)
    stream.batch()
    stream.batch()
    return stream


def run(capsys, stream, *words):
    code = cli.main(["quarantine", words[0], "-c", str(stream.directory / "shop.yaml"), *words[1:]])
    out = capsys.readouterr()
    return code, out.out, out.err


def lines(text):
    return [json.loads(line) for line in text.splitlines()]


def test_ls_counts_by_topic_table_class_and_state(stream, capsys):
    code, out, _ = run(capsys, stream, "ls", "--json")
    assert code == 0
    groups = {(row["table"], row["class"]): row for row in lines(out)}
    assert {key: row["records"] for key, row in groups.items()} == {
        ("shop.orders", "type"): 2,
        ("unknown", "json"): 2,
    }
    row = groups["shop.orders", "type"]
    assert (row["topic"], row["state"], row["first"]) == ("a", "new", row["last"])
    assert "n" in row["example"]
    code, out, _ = run(capsys, stream, "ls")
    assert out.splitlines()[0].split() == [
        "topic", "table", "class", "state", "records", "first", "last", "example",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "count"),
    [
        (("--table", "shop.orders"), 2),
        (("--table", "unknown"), 2),
        (("--class", "json"), 2),
        (("--topic", "b"), 0),
        (("--state", "replayed"), 0),
        (("--state", "new", "--class", "type"), 2),
        (("--since", "1970-01-01"), 4),
        (("--since", "2999-01-01T00:00:00+00:00"), 0),
        (("--since", "2h"), 0),
    ],
)
def test_filters(stream, capsys, words, count):
    _, out, _ = run(capsys, stream, "ls", "--json", *words)
    assert sum(row["records"] for row in lines(out)) == count


def test_show_tells_the_record_its_error_and_what_to_do(stream, capsys):
    _, out, _ = run(capsys, stream, "show", "a", "0", "2")
    assert "shop.orders" in out
    assert '"after": {' in out, "the value is pretty"
    assert bad_class("type").hint in out
    _, out, _ = run(capsys, stream, "show", "a", "0", "4")
    assert "ff fe 20 72 61 77" in out
    code, _, err = run(capsys, stream, "show", "a", "0", "99")
    assert (code, "no such record" in err) == (78, True)
    _, out, _ = run(capsys, stream, "show", "--newest", "2", "--json")
    assert [row["offset"] for row in lines(out)] == [4, 3]
    assert {"hint", "value_kind", "target"} <= lines(out)[0].keys()


def test_drop_wants_to_know_what_and_asks_the_daemon(stream, capsys):
    code, _, err = run(capsys, stream, "drop")
    assert (code, "--all" in err) == (78, True)
    code, _, _ = run(capsys, stream, "drop", "--class", "json", "--no-wait")
    (request,) = request_files(stream.settings).pending()
    assert (code, request.kind) == (0, "drop_bad")
    assert request.arguments == {"choice": {"error_class": "json"}}


def test_a_table_of_an_earlier_version_gets_the_columns_at_start(stream, tmp_path):
    schema = quarantine_schema(0)
    old = new_schema(
        [(field.name, field.type) for field in schema.fields[:13]],
        primary_keys=schema.primary_keys,
        partition_keys=(),
        options={"bucket": "1"},
        now_ms=0,
    )
    assert [change.name for change in missing_columns(old)] == ["target", "replayed_at"]
    catalog = stream.catalog
    catalog.drop_table(QUARANTINE)
    catalog.create_table(QUARANTINE, old)
    with pytest.raises(InvalidRequestError, match="earlier version"):
        read_quarantine(catalog.table(QUARANTINE), Choice())
    TableRegistry(stream.settings, ManualClock()).load()
    assert catalog.table(QUARANTINE).schema.field_names == schema.field_names
    stream.open()
    stream.topics.add("a", 0, *event("orders", 7, [1, {}]))
    stream.batch()
    (row,) = catalog.table(QUARANTINE).to_arrow().to_pylist()
    assert (row["target"], row["state"], row["replayed_at"]) == ("shop.orders", "new", None)


def test_a_choice_travels_as_plain_values():
    choice = Choice(topic="a", offset=4, since_ms=3)
    assert Choice.of_values(choice.to_values()) == choice
    for values in ({"colour": "red"}, {"offset": "4"}, {"topic": 4}):
        with pytest.raises(InvalidRequestError):
            Choice.of_values(values)


def test_bytes_are_shown_as_what_they_are():
    assert record_text(None) == ("none", "")
    assert record_text(b"") == ("empty", "")
    assert record_text(b'{"a":1}') == ("json", '{\n  "a": 1\n}')
    assert record_text(b"plain")[0] == "text"
    assert record_text(b"\0\0\0\1\7rest")[0] == "avro, schema id 263"
    kind, text = record_text(b"\xff" * 5000)
    assert (kind, text.splitlines()[-1]) == ("bytes", "… 3976 more bytes: see --whole")
    assert "more" not in record_text(b"\xff" * 5000, in_full=True)[1]
    assert hex_dump(b"A\0").split() == ["00000000", "41", "00", "A."]


def test_every_class_of_error_has_a_hint_and_is_documented():
    page = (ROOT / "docs/guides/quarantine.md").read_text(encoding="utf-8")
    for name, found in BAD_CLASSES.items():
        assert f"| `{name}` | {found.meaning} | {found.hint} |" in page, name
    text = "".join(
        path.read_text(encoding="utf-8") for path in sorted((ROOT / "ingest").rglob("*.py"))
    )
    used = set(re.findall(r"EventRefusedError\(\s*\"(\w+)\"", text))
    used |= set(re.findall(r"^ERROR_CLASS = \"(\w+)\"", text, re.MULTILINE))
    assert used <= BAD_CLASSES.keys()
