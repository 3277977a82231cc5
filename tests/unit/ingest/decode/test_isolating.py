# SPDX-License-Identifier: Apache-2.0
"""Errors that nobody foresees: one record's quarantine it alone, those of what a task works with
fail the batch. The errors are put into the code, at every step that a record goes through."""

import pytest

from ingest.decode.events import DecodeResult
from ingest.decode.json.envelope_decoder import EnvelopeDecoder
from ingest.decode.outcome import isolated
from ingest.errors import AccessDeniedError, DiskFullError, blames_record
from ingest.pipeline import tasks
from ingest.source.records import RawBatch
from ingest.state import table_registry
from storage.errors import (
    BadRecordError,
    CorruptDataError,
    InternalError,
    RetryableError,
    StorageUnavailableError,
)
from storage.lsm.merge_tree_writer import MergeTreeWriter
from tests.unit.ingest.debezium_events import dumps
from tests.unit.ingest.local_stream import LocalStream

CONFIG = """
source: {type: files, path: /nowhere, format: debezium-json MORE}
sink: {warehouse: "WAREHOUSE"}
pipeline: {name: test}
tables: [{match: '*', primary.key: [id]RULE}]
"""
QUARANTINE = "lakeward._quarantine"
BOOM = "boom \N{PILE OF POO}"
ERRORS = [
    KeyError("lost"),
    RecursionError("deep"),
    InternalError("a bug"),
    BadRecordError("odd"),
    UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed"),
    ValueError("\ud800" * 10_000),
    MemoryError(),
]


def event(number, value, table="items", **more):
    source = {"db": "shop", "table": table, "ts_ms": 5, "name": "s", "connector": "postgresql"}
    source |= {"lsn": 100 + number, "sequence": f'["{100 + number}","{100 + number}"]'}
    return dumps(
        {"before": None, "after": {"id": number, "v": value, **more}, "op": "c", "source": source}
    )


class Stream:
    def __init__(self, directory, more="", rule=""):
        self.local = LocalStream(directory, CONFIG.replace("MORE", more).replace("RULE", rule))
        self.offset = self.number = 0

    def run(self, *values):
        offsets = list(range(self.offset, self.offset + len(values)))
        raw = RawBatch("s.shop", 0, offsets, [None] * len(values), list(values))
        report = self.local.run(self.number, {(raw.topic, 0): [raw]})
        self.offset += len(values)
        self.number += 1
        return report

    def values(self, table="items"):
        return {row["id"]: row["v"] for row in self.local.rows(f"shop.{table}")}

    def bad(self):
        found = self.local.table(QUARANTINE).to_arrow().to_pylist()
        return {row["offset"]: row for row in found}


def raising_for(monkeypatch, owner, name, error, seen):
    """The function raises for what contains BOOM."""
    function = getattr(owner, name)

    def raising(*arguments, **more):
        if seen(arguments):
            raise error
        return function(*arguments, **more)

    monkeypatch.setattr(owner, name, raising)


def in_records(arguments):
    return any(BOOM.encode() in value for value in arguments[1].values)


def in_rows(index):
    def seen(arguments):
        rows = arguments[index]
        return "v" in rows.schema.names and BOOM in rows.column("v").to_pylist()

    return seen


STEPS = {
    "decoding": (EnvelopeDecoder, "decode", in_records),
    "placing": (tasks, "split_rows", in_rows(0)),
    "writing": (MergeTreeWriter, "write", in_rows(1)),
}


def at_steps(errors):
    """Every error and every step; each error at each step in the long form alone."""
    return [
        pytest.param(
            step,
            error,
            marks=() if number % len(STEPS) == at else pytest.mark.full,
            id=f"{step}-{type(error).__name__}",
        )
        for number, error in enumerate(errors)
        for at, step in enumerate(STEPS)
    ]


@pytest.mark.parametrize(("step", "error"), at_steps(ERRORS))
def test_the_record_alone_is_quarantined_with_the_traceback(step, error, tmp_path, monkeypatch):
    stream = Stream(tmp_path)
    stream.run(event(0, "first"), event(0, "first", "others"))
    owner, name, seen = STEPS[step]
    raising_for(monkeypatch, owner, name, error, seen)
    values = [event(n, BOOM if n in (3, 8) else f"v{n}") for n in range(1, 12)]
    report = stream.run(*values, event(1, "other", "others"))
    assert stream.values() == {0: "first"} | {n: f"v{n}" for n in range(1, 12) if n not in (3, 8)}
    assert stream.values("others") == {0: "first", 1: "other"}
    held = stream.bad()
    assert [row["error_class"] for row in held.values()] == ["internal"] * 2
    for row in held.values():
        assert row["value"] in values
        assert BOOM.encode() in row["value"]
        assert row["error"].startswith(type(error).__name__)
        assert "in raising" in row["error"]  # the traceback
        assert len(row["error"]) < 20_000
    assert report.bad_by_topic == {"s.shop": {"internal": 2}}
    assert sum(report.counts["s.shop"].values()) + 2 == len(values) + 1


@pytest.mark.parametrize("step", STEPS)
def test_the_record_stays_in_quarantine_when_the_batch_runs_again_for_other_tables(
    step, tmp_path, monkeypatch
):
    stream = Stream(tmp_path)
    stream.run(event(0, "first"), event(0, "first", "others"))
    owner, name, seen = STEPS[step]
    raising_for(monkeypatch, owner, name, KeyError("lost"), seen)
    stream.run(event(1, BOOM), event(1, "more", "others", w=1), event(2, "new", "third"))
    assert stream.values() == {0: "first"}
    assert stream.values("others") == {0: "first", 1: "more"}
    assert stream.values("third") == {2: "new"}
    assert [row["error_class"] for row in stream.bad().values()] == ["internal"]


@pytest.mark.parametrize(
    ("step", "error"),
    at_steps(
        [
            OSError(5, "Input/output error"),
            RetryableError("the registry does not answer"),
            StorageUnavailableError("the store is away"),
            AccessDeniedError("no"),
            DiskFullError("full"),
        ]
    ),
)
def test_errors_of_what_a_task_works_with_fail_the_batch(step, error, tmp_path, monkeypatch):
    stream = Stream(tmp_path)
    stream.run(event(0, "first"))
    owner, name, seen = STEPS[step]
    raising_for(monkeypatch, owner, name, error, seen)
    with pytest.raises(type(error)):
        stream.run(event(1, "a"), event(2, BOOM))
    monkeypatch.undo()
    stream.run(event(1, "a"), event(2, BOOM))
    assert stream.values() == {0: "first", 1: "a", 2: BOOM}


@pytest.mark.parametrize("step", ["placing", "writing"])
def test_a_step_that_fails_for_all_rows_is_a_bug_and_no_rows_fault(step, tmp_path, monkeypatch):
    stream = Stream(tmp_path)
    stream.run(event(0, "first"))
    owner, name, _ = STEPS[step]
    raising_for(monkeypatch, owner, name, InternalError("a bug"), lambda _: True)
    with pytest.raises(InternalError):
        stream.run(event(1, "a"), event(2, "b"))


def test_records_that_fail_only_together_are_decoded_apart(tmp_path, monkeypatch):
    stream = Stream(tmp_path)
    stream.run(event(0, "first"))
    decode = EnvelopeDecoder.decode

    def together(self, raw, *more):
        if sum(b"pair" in value for value in raw.values) > 1:
            raise KeyError("two of them")
        return decode(self, raw, *more)

    monkeypatch.setattr(EnvelopeDecoder, "decode", together)
    report = stream.run(event(1, "pair"), event(2, "a"), event(3, "pair"), event(4, "pair"))
    assert stream.values() == {0: "first", 1: "pair", 2: "a", 3: "pair", 4: "pair"}
    assert (report.counts["s.shop"]["op.c"], stream.bad()) == (4, {})


def test_want_of_memory_is_no_records_fault(monkeypatch):
    assert blames_record(MemoryError())

    def no_memory(_):
        raise MemoryError

    monkeypatch.setitem(__import__("builtins").__dict__, "bytearray", no_memory)
    assert not blames_record(MemoryError())


def test_a_schema_change_that_nobody_foresees_holds_up_no_other_table(tmp_path, monkeypatch):
    stream = Stream(tmp_path)
    stream.run(event(0, "first"), event(0, "first", "others"))
    raising_for(
        monkeypatch,
        table_registry,
        "decided",
        KeyError("lost"),
        lambda arguments: any(f.name == "poison" for d in arguments[3] for f in d.fields),
    )
    stream.run(event(1, "a"), event(2, "b", poison=1), event(3, "c", "others", new=1))
    assert stream.values() == {0: "first", 1: "a"}
    assert stream.values("others") == {0: "first", 3: "c"}
    (held,) = stream.bad().values()
    assert (held["error_class"], held["offset"]) == ("schema", 3)
    assert "KeyError: 'lost'" in held["error"]


def test_a_table_that_alone_is_corrupt_is_parked_and_not_searched(tmp_path, monkeypatch):
    stream = Stream(tmp_path)
    stream.run(event(0, "first"), event(0, "first", "others"))
    error = CorruptDataError("a file is damaged")
    raising_for(
        monkeypatch,
        tasks,
        "reduce_chunks",
        error,
        lambda a: any(c.table == "shop.items" for c in a[2]),
    )
    monkeypatch.setattr(stream.local.sink, "_park", lambda *_: None)
    stream.run(event(1, "a"), event(1, "b", "others"))
    assert stream.values("others") == {0: "first", 1: "b"}
    assert stream.bad() == {}


def test_positions_are_those_of_a_stream_without_the_record(tmp_path, monkeypatch):
    order = ", ordering: source"
    values = [event(n, BOOM if n == 4 else f"v{n}") for n in range(9)]
    found = []
    for name in ("with", "without"):
        (tmp_path / name).mkdir()
        stream = Stream(tmp_path / name, order)
        stream.run(values[0])
        if name == "with":
            raising_for(monkeypatch, *STEPS["decoding"][:2], KeyError("lost"), in_records)
        stream.run(*(v for v in values[1:] if name == "with" or BOOM.encode() not in v))
        monkeypatch.undo()
        rows = stream.local.table("shop.items").to_arrow().to_pylist()
        found.append(sorted(rows, key=lambda row: row["id"]))
    assert found[0] == found[1]
    assert len(found[0]) == 8


def test_what_was_matched_is_kept_where_records_are_decoded_apart():
    raw = RawBatch("shop", 0, [0, 1], [None, None], [b"a", b"b"])

    def decode(some):
        if len(some) > 1:
            raise KeyError("two of them")
        matched = frozenset({("shop.orders", some.values[0].decode(), "x")})
        return DecodeResult([], [], [], {"op.c": 1}, matched, walked=1)

    found = isolated(decode, decode, raw)
    assert found.case_matches == {("shop.orders", "a", "x"), ("shop.orders", "b", "x")}
    assert (found.counts, found.walked) == ({"op.c": 2}, 2)
