# SPDX-License-Identifier: Apache-2.0
"""The files source: layout, envelopes, limits, growth, exact replay, lost files."""

import gzip
import itertools
import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.config.source_settings import FileSourceSettings
from ingest.source.file_lines import POSITION_BITS, last_complete_end, read_range, topic_of
from ingest.source.files import FileSource
from ingest.source.open import LagProbe, open_ranges
from ingest.source.records import (
    SourceRange,
    initial_from_stored,
    normalize,
    offsets_to_store,
    resume_token,
)
from storage.clock import ManualClock
from storage.errors import CorruptDataError, DataLossError, InvalidOptionError, RetryableError


def source_of(path: Path, **values) -> FileSource:
    values.setdefault("discovery_interval_s", 0.0)
    return FileSource(FileSourceSettings(path=str(path), **values), ManualClock())


def event(number: int) -> bytes:
    return b'{"before":null,"after":{"id":%d},"op":"c"}' % number


def write(path: Path, numbers, *, end: bytes = b"\n") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\n".join(event(n) for n in numbers) + end)


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as stream:
        stream.write(data)


def read(source: FileSource, start: dict, end: dict) -> dict[str, list[tuple[int, bytes | None]]]:
    """Rows by topic, checked to come with strictly increasing offsets inside their range."""
    rows: dict[str, list[tuple[int, bytes | None]]] = {}
    for task in source.plan(start, end):
        for piece, batches in open_ranges(task, source._settings):
            last = piece.start - 1
            for batch in batches:
                assert 0 < len(batch) <= 5000
                assert batch.offsets[0] > last
                last = batch.offsets[-1]
                assert last < piece.end
                rows.setdefault(batch.topic, []).extend(
                    zip(batch.offsets, batch.values, strict=True)
                )
    return rows


def numbers(rows) -> list[int]:
    return [json.loads(value)["after"]["id"] for _, value in rows]


def drain(source: FileSource, start: dict, **limits) -> tuple[dict[str, list], list[dict]]:
    """Read everything batch by batch; offsets go through their text, as in Spark."""
    rows: dict[str, list] = {}
    ends = [start]
    while (end := source.latest(ends[-1], **limits)) != ends[-1]:
        end = normalize(json.loads(json.dumps(end)))
        for topic, part in read(source, ends[-1], end).items():
            rows.setdefault(topic, []).extend(part)
        ends.append(end)
    return rows, ends


@pytest.mark.parametrize(
    ("name", "topic"),
    [
        ("shop.customers.0001.jsonl", "shop.customers"),
        ("shop.customers.jsonl", "shop.customers"),
        ("shop.orders_2024.json", "shop.orders_2024"),
        ("shop.orders.2024-05-01T10.ndjson.gz", "shop.orders"),
        ("shop.orders/part-7.jsonl", "shop.orders"),
        ("shop.orders/dt=1/part-7.jsonl", "shop.orders"),
        ("notes.txt", None),
        (".hidden.jsonl", None),
        ("_tmp/a.jsonl", None),
        ("t/.a.jsonl.tmp", None),
    ],
)
def test_topic_of_a_file(name, topic):
    assert topic_of(name) == topic


def test_topics_are_read_in_name_order(tmp_path):
    write(tmp_path / "shop.b.0002.jsonl", range(10, 20))
    write(tmp_path / "shop.b.0001.jsonl", range(10))
    write(tmp_path / "shop.a" / "x.jsonl", range(5))
    write(tmp_path / "shop.skip" / "x.jsonl", range(5))
    source = source_of(tmp_path, topics_exclude=(".*skip",))
    rows, ends = drain(source, source.initial())
    assert set(rows) == {"shop.a", "shop.b"}
    assert numbers(rows["shop.b"]) == list(range(20))
    assert numbers(rows["shop.a"]) == list(range(5))
    assert len(ends) == 2
    offsets = [offset for offset, _ in rows["shop.b"]]
    assert offsets == sorted(set(offsets))
    assert offsets[10] == 1 << POSITION_BITS


@pytest.mark.parametrize("limits", [{"max_records": 7}, {"max_bytes": 300}, {}])
def test_limits_cut_at_line_borders_and_lose_nothing(tmp_path, limits):
    for file in range(3):
        write(tmp_path / f"t.{file}.jsonl", range(file * 10, file * 10 + 10))
    write(tmp_path / "u.0.jsonl", range(4))
    source = source_of(tmp_path)
    rows, ends = drain(source, source.initial(), **limits)
    assert numbers(rows["t"]) == list(range(30))
    assert numbers(rows["u"]) == list(range(4))
    for start, end in itertools.pairwise(ends):
        got = read(source, start, end)
        count = sum(map(len, got.values()))
        size = sum(len(value) + 1 for part in got.values() for _, value in part)
        assert count <= limits.get("max_records", 100)
        assert size <= limits.get("max_bytes", 10_000) + 2 * (len(event(1)) + 2)


def test_a_limit_on_files(tmp_path):
    for file in range(5):
        write(tmp_path / f"t.{file}.jsonl", [file])
    source = source_of(tmp_path, max_files=2)
    rows, ends = drain(source, source.initial())
    assert numbers(rows["t"]) == list(range(5))
    assert [len(end["t"]["files"]) for end in ends[1:]] == [2, 2, 1]


def test_row_limits_are_estimated_beyond_the_first_megabytes(tmp_path):
    line = b'{"after":{"id":1},"op":"c","pad":"%s"}\n' % (b"x" * 4_000)
    (tmp_path / "t.jsonl").write_bytes(line * 4_000)
    source = source_of(tmp_path)
    start = source.initial()
    end = source.latest(start, max_records=3_000)
    assert sum(map(len, read(source, start, end).values())) == pytest.approx(3_000, rel=0.01)


def test_replay_reads_the_same_bytes_although_files_arrived_and_grew(tmp_path):
    write(tmp_path / "t.1.jsonl", range(10))
    write(tmp_path / "t.2.jsonl", range(10, 15))
    source = source_of(tmp_path)
    start = source.initial()
    end = normalize(json.loads(json.dumps(source.latest(start, max_records=12))))
    first = read(source, start, end)
    append(tmp_path / "t.2.jsonl", event(99) + b"\n")
    write(tmp_path / "t.3.jsonl", [100])
    write(tmp_path / "t.1b.jsonl", [101])  # sorts between them, too late
    again = source_of(tmp_path)  # a new process plans the old batch first
    assert read(again, start, end) == first
    assert numbers(first["t"]) == list(range(12))


def test_a_growing_file_is_read_up_to_its_last_complete_line(tmp_path):
    path = tmp_path / "t.1.jsonl"
    path.write_bytes(event(1) + b"\n" + event(2)[:10])
    source = source_of(tmp_path)
    rows, ends = drain(source, source.initial())
    assert numbers(rows["t"]) == [1]
    append(path, event(2)[10:])  # complete, though without a newline
    rows, ends = drain(source, ends[-1])
    assert numbers(rows["t"]) == [2]
    append(path, b"\n" + event(3) + b"\n")
    rows, ends = drain(source, ends[-1])
    assert numbers(rows["t"]) == [3]
    assert source.latest(ends[-1]) is not None
    assert source.latest(ends[-1]) == ends[-1]


def test_a_file_is_closed_by_the_next_one(tmp_path):
    write(tmp_path / "t.1.jsonl", [1], end=b'\n{"brok')
    write(tmp_path / "t.2.jsonl", [])
    (tmp_path / "t.2.jsonl").write_bytes(b"")
    write(tmp_path / "t.3.jsonl", [3], end=b"")
    source = source_of(tmp_path)
    rows, ends = drain(source, source.initial())
    assert [value for _, value in rows["t"]] == [event(1), b'{"brok', event(3)]
    assert ends[-1]["t"]["0"] >> POSITION_BITS == 2
    # new files go on counting, also after a restart and after old files were removed
    for name in ("t.1.jsonl", "t.2.jsonl"):
        (tmp_path / name).unlink()
    write(tmp_path / "t.4.jsonl", [4])
    rows, ends = drain(source_of(tmp_path), ends[-1])
    assert numbers(rows["t"]) == [4]
    assert ends[-1]["t"]["0"] >> POSITION_BITS == 3


@given(st.binary(max_size=60), st.integers(1, 7))
def test_last_complete_end_is_a_line_border(tmp_path_factory, data, start):
    path = tmp_path_factory.getbasetemp() / "growing.jsonl"
    path.write_bytes(data)
    start = min(start, len(data))
    end = last_complete_end(path, start, len(data))
    newline = data.rfind(b"\n", start)
    assert end == (newline + 1 if newline >= 0 else start)


def test_bare_values_are_handed_on_untouched_and_blank_lines_are_nothing(tmp_path):
    lines = [event(1), b"", b"  ", b"not json at all", b"null", event(2) + b"\r", b"\r", b"7"]
    (tmp_path / "t.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    source = source_of(tmp_path)
    rows, _ = drain(source, source.initial())
    values = [value for _, value in rows["t"]]
    assert values == [event(1), b"not json at all", None, event(2) + b"\r", b"7"]
    data = (tmp_path / "t.jsonl").read_bytes()
    for offset, value in rows["t"]:
        assert data[offset:].startswith(value or b"null")


@pytest.mark.parametrize("blank", [b"    ", b"\t\t\t", b"   \r"])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_long_blank_line_is_nothing_either(tmp_path, blank, place):
    lines = [event(1), event(2)]
    lines.insert(place, blank)
    (tmp_path / "t.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    source = source_of(tmp_path)
    rows, _ = drain(source, source.initial())
    assert [value for _, value in rows["t"]] == [event(1), event(2)]


def test_archived_records_are_opened_without_changing_a_byte(tmp_path):
    lines = [
        b'{"key":{"id": 1},"value":{"a": 1.10, "n": 12345678901234567890123}}',
        b'{"key":"plain","value":"{\\"a\\":1}","timestamp":17,"headers":{"h":"x","n":1}}',
        b'{"value":null,"key":{"id":3},"headers":[["a","b"],{"key":"c","value":null}]}',
        b'{"value":{"b":1}}',
        b'{"key":1,"other":2}',
        b'{"key":{"id":5},"value":',
        event(9),
    ]
    (tmp_path / "t.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    source = source_of(tmp_path)
    start = source.initial()
    [[piece]] = source.plan(start, source.latest(start))
    # the cut-off envelope is complete as a line: it is the decoder's to refuse
    [batch] = read_range(piece, source._settings)
    assert batch.keys == [b'{"id": 1}', b"plain", b'{"id":3}', None, None, None, None]
    assert batch.values == [
        b'{"a": 1.10, "n": 12345678901234567890123}',
        b'{"a":1}',
        None,
        b'{"b":1}',
        lines[4],
        lines[5],
        lines[6],
    ]
    assert batch.headers(1) == [("h", b"x"), ("n", b"1")]
    assert batch.timestamp_ms(1) == 17
    assert batch.headers(2) == [("a", b"b"), ("c", b"")]
    assert batch.headers(0) == []
    assert batch.timestamp_ms(0) == -1


RECORD_LIKE = [
    b'{"key":{"id":1},"value":{"a":1}}',
    b'{"value":2,"topic":"x","partition":3,"offset":4,"timestamp":5}',
    b'{ "timestamp":17, "value":null, "headers":{}}',
]


def values_of(directory, lines, form):
    (directory / "t.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    source = source_of(directory, lines=form)
    rows, _ = drain(source, source.initial())
    return [value for _, value in rows["t"]]


def test_rows_with_the_columns_of_records_are_rows_where_the_settings_say_so(tmp_path):
    lines = [*RECORD_LIKE, event(1), b"null"]
    assert values_of(tmp_path, lines, "value") == [*RECORD_LIKE, event(1), None]
    opened = [b'{"a":1}', b"2", None, event(1), None]
    assert values_of(tmp_path, lines, "auto") == opened
    spaced = [b"\t{\n".replace(b"\n", b" ") + b'"value":{"a":1}}', *lines[1:]]
    assert values_of(tmp_path, spaced, "archived") == opened


@pytest.mark.parametrize("line", RECORD_LIKE)
def test_a_line_that_may_be_a_record_or_a_row_stops_the_stream(tmp_path, line):
    rows = [b'{"id":1,"key":"k"}', b'{"value":1,"unit":"m"}', b'{"key":1,"timestamp":2}']
    assert values_of(tmp_path, rows, "ask") == rows
    with pytest.raises(InvalidOptionError, match=r"source\.lines: archived") as caught:
        values_of(tmp_path, [*rows, line], "ask")
    place = caught.value.context
    assert (place["topic"], place["file"]) == ("t", "t.jsonl")
    assert place["position"] == sum(len(row) + 1 for row in rows)
    assert place["members"] == ", ".join(json.loads(line))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 400), min_size=1, max_size=60), st.integers(1, 8), st.booleans())
def test_any_split_reads_each_line_once(tmp_path_factory, lengths, parallelism, final_newline):
    root = tmp_path_factory.mktemp("split")
    lines = [b'{"n":%d,"p":"%s"}' % (n, b"x" * length) for n, length in enumerate(lengths)]
    (root / "t.1.jsonl").write_bytes(b"\n".join(lines) + (b"\n" if final_newline else b""))
    source = source_of(root, parallelism=parallelism)
    start = source.initial()
    end = source.latest(start)
    whole = [SourceRange("t", 0, 0, end["t"]["0"], ("t.1.jsonl",))]
    pieces = [
        source._cut_position(whole[0], at)
        for at in range(1, end["t"]["0"], max(1, sum(lengths) // 7))
    ]
    borders = sorted({0, *pieces, end["t"]["0"]})
    values = []
    for first, last in itertools.pairwise(borders):
        for batch in read_range(SourceRange("t", 0, first, last, ("t.1.jsonl",)), source._settings):
            values += batch.values
    assert values == lines


def test_a_large_file_becomes_several_tasks(tmp_path):
    line = b'{"after":{"id":1},"op":"c","pad":"%s"}\n' % (b"x" * 9_600)
    (tmp_path / "t.jsonl").write_bytes(line * 2_800)
    source = source_of(tmp_path, parallelism=4)
    start = source.initial()
    end = source.latest(start)
    tasks = source.plan(start, end)
    assert len(tasks) == 4
    assert tasks == source.plan(start, end)
    rows = read(source, start, end)["t"]
    assert [offset for offset, _ in rows] == [n * len(line) for n in range(2_800)]


def test_compressed_files_are_taken_whole(tmp_path):
    with gzip.open(tmp_path / "t.1.jsonl.gz", "wb") as stream:
        stream.write(b"\n".join(event(n) for n in range(1000)))
    write(tmp_path / "t.2.jsonl", [1000])
    source = source_of(tmp_path)
    rows, ends = drain(source, source.initial(), max_bytes=100)
    assert numbers(rows["t"]) == list(range(1001))
    assert len(ends) == 3


def test_a_compressed_file_that_is_still_written_waits(tmp_path):
    whole = gzip.compress(event(1) + b"\n")
    (tmp_path / "t.1.jsonl.gz").write_bytes(whole[:-6])
    source = source_of(tmp_path)
    start = source.initial()
    assert source.latest(start) == start
    (tmp_path / "t.1.jsonl.gz").write_bytes(whole)
    assert numbers(drain(source, start)[0]["t"]) == [1]
    (tmp_path / "t.2.jsonl.gz").write_bytes(whole[:-6])
    write(tmp_path / "t.3.jsonl", [3])
    with pytest.raises(CorruptDataError, match=r"t\.2\.jsonl\.gz"):
        drain(source, start)


def test_a_compressed_file_with_a_hole_waits_too(tmp_path):
    whole = gzip.compress(event(1) + b"\n")
    (tmp_path / "t.1.jsonl.gz").write_bytes(whole[:10] + bytes(len(whole) - 10))
    source = source_of(tmp_path)
    start = source.initial()
    assert source.latest(start) == start
    write(tmp_path / "t.2.jsonl", [2])
    with pytest.raises(CorruptDataError, match=r"t\.1\.jsonl\.gz"):
        drain(source, start)


@pytest.mark.parametrize(("mode", "expected"), [("latest", []), ("timestamp", [2, 3])])
def test_startup_modes(tmp_path, mode, expected):
    for number in (1, 2, 3):
        path = tmp_path / f"t.{number}.jsonl"
        write(path, [number])
        os.utime(path, (number, number))
    values = {"startup_timestamp_ms": 2000} if mode == "timestamp" else {}
    source = source_of(tmp_path, startup_mode=mode, **values)
    rows, ends = drain(source, source.initial())
    assert numbers(rows.get("t", [])) == expected
    write(tmp_path / "t.4.jsonl", [4])
    write(tmp_path / "new.1.jsonl", [5])
    rows, ends = drain(source, ends[-1])
    assert numbers(rows["t"]) == [4]
    assert numbers(rows["new"]) == [5]
    assert ends[-1]["t"]["0"] >> POSITION_BITS == 3


def lose(source: FileSource, ends: list[dict], lossy: FileSource, match: str) -> list[int]:
    with pytest.raises(DataLossError, match=match):
        source.latest(ends[-1])
    return numbers(drain(lossy, ends[-1])[0].get("t", []))


def test_a_file_whose_name_sorts_before_what_was_read_is_noticed(tmp_path):
    write(tmp_path / "t.2.jsonl", [2])
    source, lossy = source_of(tmp_path), source_of(tmp_path, fail_on_data_loss=False)
    _, ends = drain(source, source.initial())
    write(tmp_path / "t.1.jsonl", [1])
    write(tmp_path / "t.3.jsonl", [3])
    assert lose(source, ends, lossy, r"t\.1\.jsonl") == [3]


def test_a_file_that_vanishes_or_shrinks_before_it_was_read_is_noticed(tmp_path):
    write(tmp_path / "t.1.jsonl", range(10))
    write(tmp_path / "t.2.jsonl", [10])
    source, lossy = source_of(tmp_path), source_of(tmp_path, fail_on_data_loss=False)
    ends = [source.latest(source.initial(), max_records=3)]
    write(tmp_path / "t.1.jsonl", [1])
    assert lose(source, ends, lossy, "shrank") == [10]
    (tmp_path / "t.1.jsonl").unlink()
    assert lose(source, ends, lossy, "disappeared") == [10]


def test_a_planned_file_that_is_gone_fails_the_task_or_is_counted(tmp_path):
    write(tmp_path / "t.1.jsonl", range(10))
    source = source_of(tmp_path)
    start = source.initial()
    [[piece]] = source.plan(start, source.latest(start))
    (tmp_path / "t.1.jsonl").unlink()
    with pytest.raises(DataLossError, match=r"t\.1\.jsonl"):
        list(read_range(piece, source._settings))
    lossy = FileSourceSettings(path=str(tmp_path), fail_on_data_loss=False)
    [batch] = read_range(piece, lossy)
    assert (len(batch), batch.skipped) == (0, piece.end)


def test_a_frozen_source_sees_nothing_new(tmp_path):
    write(tmp_path / "t.1.jsonl", [1])
    source = source_of(tmp_path)
    start = source.initial()
    source.freeze()
    write(tmp_path / "t.2.jsonl", [2])
    append(tmp_path / "t.1.jsonl", event(3) + b"\n")
    rows, ends = drain(source, start)
    assert numbers(rows["t"]) == [1]
    rows, _ = drain(source_of(tmp_path), ends[-1])
    assert numbers(rows["t"]) == [3, 2]


def test_a_missing_directory_is_waited_for(tmp_path):
    source = source_of(tmp_path / "later")
    with pytest.raises(RetryableError, match="later"):
        source.initial()
    assert source.latest({}) == {}
    write(tmp_path / "later" / "t.jsonl", [1])
    assert numbers(drain(source, {})[0]["t"]) == [1]


def test_recovery_from_stored_offsets(tmp_path):
    for file in range(3):
        write(tmp_path / f"t.{file}.jsonl", range(file * 10, file * 10 + 10))
    source = source_of(tmp_path)
    _, ends = drain(source, source.initial(), max_records=12)
    stored = [offsets_to_store(end) for end in ends[1:]]
    again = source_of(tmp_path)
    recovered = again.restore(initial_from_stored(stored))
    assert numbers(drain(again, recovered)[0]["t"]) == list(range(12, 30))
    # with nothing but the integers the file is found by its ordinal
    bare = again.restore(resume_token(ends[1]))
    assert bare["t"]["0"] == ends[1]["t"]["0"]
    assert numbers(drain(again, bare)[0]["t"]) == list(range(12, 30))
    for wrong in (9 << POSITION_BITS, 5, (1 << POSITION_BITS) | 100_000):
        with pytest.raises(DataLossError, match="ordinal"):
            again.restore({"t": {"0": wrong}})


def test_lag(tmp_path):
    for file in range(3):
        write(tmp_path / f"t.{file}.jsonl", range(10))
    source = source_of(tmp_path)
    _, ends = drain(source, source.initial())
    token = resume_token(ends[-1])["t"]["0"]
    assert resume_token(source.available(ends[-1])) == {"t": {"0": token}}
    size = (tmp_path / "t.0.jsonl").stat().st_size
    with LagProbe(FileSourceSettings(path=str(tmp_path)), ManualClock()) as probe:
        assert probe.poll() == {("t", 0): (0, token)}
        assert probe.poll({("t", 0): token}) == {("t", 0): (0, token)}
        assert probe.poll({("t", 0): 100}) == {("t", 0): (0, 3 * size)}


def test_a_stream_goes_back_only_if_every_file_since_is_still_there(tmp_path):
    source = source_of(tmp_path)
    for number in range(4):
        write(tmp_path / f"t/{number}.jsonl", [number])
    since = source.latest(source.initial(), max_records=1)
    position = source.latest(source.latest(since))
    stored = offsets_to_store(since)
    assert source.rewind(stored, position) == stored
    assert read(source, stored, source.latest(stored)) == read(source, since, source.latest(since))
    assert source.rewind({}, position) == {}, "a topic that was unknown is read from its beginning"

    (tmp_path / "t/0.jsonl").unlink()
    assert source.rewind(stored, position) == stored, "read before, to its end"
    with pytest.raises(DataLossError, match="resnapshot"):
        source.rewind({}, position)
    (tmp_path / "t/2.jsonl").unlink()
    with pytest.raises(DataLossError, match="resnapshot"):
        source.rewind(stored, position)


def test_a_file_that_grew_since_and_is_gone_cannot_be_read_again(tmp_path):
    source = source_of(tmp_path)
    write(tmp_path / "t/0.jsonl", range(3))
    since = source.latest(source.initial())
    append(tmp_path / "t/0.jsonl", event(3) + b"\n")
    position = source.latest(since)
    assert position != since
    (tmp_path / "t/0.jsonl").unlink()
    with pytest.raises(DataLossError, match="resnapshot"):
        source.rewind(offsets_to_store(since), position)


DEEP = b"[" * 1_500 + b"]" * 1_500


@pytest.mark.parametrize(
    ("line", "key", "value"),
    [
        (b'{"key":null,"value":' + DEEP + b"}", None, None),
        (b'{"value":"\\ud800"}', None, None),
        (b'{"value":"\xff"}', None, None),
        (b'{"key":{"a":"\\x"},"value":1}', None, None),
        (b'{"value":{},"headers":["\\ud800"]}', None, None),
        (b'{"value":{},"headers":' + DEEP + b"}", None, None),
        (b'{"value":{},"headers":{"a":"b","a":[1e400]}}', None, b"{}"),
        (b'{"value":{},"headers":{"a":1e999,"":[{}]}}', None, b"{}"),
        (b'{"value":{},"timestamp":99999999999999999999}', None, b"{}"),
        (b'{"value":{},"value":1}', None, b"1"),
    ],
)
def test_no_line_ends_the_reading_of_a_file(tmp_path, line, key, value):
    (tmp_path / "t.jsonl").write_bytes(b'{"value":1}\n' + line + b'\n{"value":2}\n')
    size = (tmp_path / "t.jsonl").stat().st_size
    piece = SourceRange("t", 0, 0, size, ("t.jsonl",))
    (raw,) = read_range(piece, FileSourceSettings(path=str(tmp_path)))
    assert len(raw) == 3
    assert (raw.values[0], raw.values[2]) == (b"1", b"2")
    assert (raw.keys[1], raw.values[1]) == ((None, line) if value is None else (key, value))
    assert all(isinstance(name, str) for name, _ in raw.headers(1))
