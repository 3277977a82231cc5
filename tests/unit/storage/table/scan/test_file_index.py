# SPDX-License-Identifier: Apache-2.0
"""File indexes of tables: what is asked for, what a filter gets from them, and giving old files
the indexes they lack."""

import datetime as dt
import decimal
import pathlib
import pickle
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pyroaring
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.errors import CorruptDataError, InvalidOptionError, InvalidRequestError
from storage.format.files.row_selection import Except, Only
from storage.format.index.builder import FileIndexSpec, read_container
from storage.format.metadata.file_meta import DataFileMeta
from storage.format.metadata.schema_changes import (
    AddColumn,
    DropColumn,
    RenameColumn,
    SetOption,
    UpdateType,
)
from storage.format.metadata.snapshot import CommitKind
from storage.format.types.types import parse_type
from storage.io.local import LocalFileIO
from storage.options.options import TableOptions
from storage.table.commit.live_files import live_entries
from storage.table.compaction import rescale
from storage.table.compaction.rescale import next_index_name, rewrite_file_index
from storage.table.retention.expire import expire_snapshots
from storage.table.scan.file_index import FileIndexFilter, index_source
from storage.table.scan.predicate import (
    Between,
    Compare,
    In,
    IsNull,
    Like,
    Not,
    Op,
    Predicate,
    parse_predicate,
)
from storage.table.table import FileStoreTable
from tests.faulty_io import FaultyFileIO
from tests.predicates import combined
from tests.table_kit import data_files, make_table, prepared, reopened, rows_of, write
from tests.unit.storage.newest_files import newest_entries

DAY = "2024-01-01"
MAP: Any = {"type": "MAP", "key": "STRING", "value": "STRING"}
COLUMNS = (
    *(("k", "INT"), ("s", "STRING"), ("n", "BIGINT"), ("x", "DOUBLE"), ("d", "DECIMAL(9, 2)")),
    *(("t", "TIMESTAMP(9)"), ("b", "BOOLEAN"), ("m", MAP)),
)
INDEXES = {
    "file-index.bloom-filter.columns": "s,n,x,t,m[a]",
    "file-index.bloom-filter.s.items": "100",
    "file-index.bloom-filter.n.items": "100",
    "file-index.bloom-filter.x.items": "100",
    "file-index.bloom-filter.t.items": "100",
    "file-index.bloom-filter.m.items": "100",
    "file-index.bitmap.columns": "s,b,x,t",
    "file-index.bsi.columns": "n,d,t",
    "file-index.range-bitmap.columns": "s,x,d,n",
}
EMBEDDED = {"file-index.in-manifest-threshold": "1 mb"}
SEPARATE = {"file-index.in-manifest-threshold": "1 b"}


def a_row(k: int) -> tuple[Any, ...]:
    """A row whose columns repeat at different paces, with nulls."""
    null = k % 7 == 3
    moment = dt.datetime.fromisoformat(DAY) + dt.timedelta(microseconds=k % 4)
    return (
        "+I",
        k,
        None if null else f"s{k % 5}",
        None if k % 6 == 5 else (k % 9 - 4) * 10,
        [0.0, -0.0, float("nan"), 1.5, None, float("-inf")][k % 6],
        None if null else decimal.Decimal(k % 8 - 3) / 4,
        None if k % 5 == 1 else moment,
        [True, False, None][k % 3],
        [("a", f"m{k % 4}"), ("b", None)][: k % 3] if k % 4 else None,
    )


def an_indexed_table(
    path: pathlib.Path, options: Mapping[str, str], **arguments: Any
) -> FileStoreTable:
    table = make_table(path, columns=COLUMNS, options={**INDEXES, **options}, **arguments)
    write(table, 1, [a_row(k) for k in range(40)], full=True)
    return table


def the_file(table: FileStoreTable) -> tuple[str, DataFileMeta]:
    (entry,) = newest_entries(table)
    return table.data_path(entry.partition, entry.bucket, entry.file.file_name), entry.file


def container_of(table: FileStoreTable) -> Mapping[str, Mapping[str, bytes | None]]:
    path, file = the_file(table)
    source = index_source(table.file_io, path, file)
    assert source is not None
    return read_container(source).payloads()


def verdict(table: FileStoreTable, text: str) -> list[int] | None:
    """Rows that the index leaves; None = all."""
    found = FileIndexFilter(table, parse_predicate(text)).selection(*the_file(table))
    assert found is None or isinstance(found, Only)
    return None if found is None else list(found.rows)


# -------------------------------------------------------------------------------- options


def test_the_indexes_that_options_ask_for() -> None:
    options = {
        "file-index.bloom-filter.columns": "id, m[a],m[b]",
        "file-index.bloom-filter.m[b].items": "7",
        "file-index.bloom-filter.m.items": "5",
        "file-index.bitmap.columns": "s",
        "file-index.bitmap.s.index-block-size": "4 kb",
        "file-index.in-manifest-threshold": "1 kb",
        "file-index.read.enabled": "false",
    }
    parsed = TableOptions.from_strings(options)
    assert FileIndexSpec.of(parsed) == (
        FileIndexSpec("bloom-filter", "id"),
        FileIndexSpec("bloom-filter", "m", "a", {"items": 5}),
        FileIndexSpec("bloom-filter", "m", "b", {"items": 7}),
        FileIndexSpec("bitmap", "s", None, {"index-block-size": 4096}),
    )
    assert (parsed.file_index_threshold, parsed.file_index_read_enabled) == (1024, False)
    assert FileIndexSpec.of(TableOptions.from_strings({})) == ()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"file-index.zonemap.columns": "k"}, "bloom-filter, bitmap, bsi, range-bitmap"),
        ({"file-index.bsi.columns": "k,,n"}, "empty item"),
        ({"file-index.bsi.columns": "nope"}, "k, s, n"),
        ({"file-index.bsi.columns": "s"}, "BIGINT"),
        ({"file-index.bitmap.columns": "d"}, "`bitmap` takes BIGINT, BOOLEAN"),
        ({"file-index.bitmap.columns": "m"}, "takes"),
        ({"file-index.bitmap.columns": "s[a]"}, "map column with text keys"),
        ({"file-index.range-bitmap.columns": "t"}, "TIMESTAMP up to precision 6"),
        (
            {"file-index.bitmap.columns": "s", "file-index.bitmap.n.version": "1"},
            "without this file index",
        ),
        ({"file-index.bitmap.columns": "s", "file-index.bitmap.s.version": "x"}, "whole number"),
        (
            {"file-index.bloom-filter.columns": "s", "file-index.bloom-filter.s.fpp": "2"},
            "between 0 and 1",
        ),
    ],
)
def test_what_cannot_be_is_refused_when_the_table_is_made(
    tmp_path: pathlib.Path, options: dict[str, str], says: str
) -> None:
    with pytest.raises(InvalidOptionError, match=says):
        make_table(tmp_path, columns=COLUMNS, options=options)
    table = make_table(tmp_path, columns=COLUMNS)
    with pytest.raises(InvalidOptionError, match=says):
        table.alter([SetOption(key, value) for key, value in options.items()])


def test_an_unknown_setting_is_only_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    options = {"file-index.bsi.columns": "n", "file-index.bsi.n.colour": "red"}
    FileIndexSpec.of(TableOptions.from_strings(options))
    FileIndexSpec.of(TableOptions.from_strings(options))
    assert caplog.text.count("file-index.bsi.n.colour") == 1


# -------------------------------------------------------------------------------- writing


def test_indexes_are_written_where_the_threshold_says(tmp_path: pathlib.Path) -> None:
    table = an_indexed_table(tmp_path / "embedded", EMBEDDED)
    _, file = the_file(table)
    assert file.embedded_index is not None
    assert file.extra_files == ()
    inside = container_of(table)
    table = an_indexed_table(tmp_path / "separate", SEPARATE)
    _, file = the_file(table)
    assert file.embedded_index is None
    assert file.extra_files == (f"{file.file_name}.index",)
    assert container_of(table) == inside
    assert set(inside) == {"s", "n", "x", "d", "t", "b", "m[a]"}
    assert set(inside["n"]) == {"bloom-filter", "bsi", "range-bitmap"}


# ---------------------------------------------------------------------------- evaluation


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Sequence[FileStoreTable]:
    path = tmp_path_factory.mktemp("indexed")
    return (
        an_indexed_table(path / "embedded", EMBEDDED),
        an_indexed_table(path / "separate", SEPARATE),
        an_indexed_table(path / "off", {**EMBEDDED, "file-index.read.enabled": "false"}),
    )


@pytest.mark.parametrize(
    ("text", "test"),
    [
        ("s = 's1'", lambda r: r[2] == "s1"),
        ("s <> 's1'", lambda r: r[2] not in (None, "s1")),
        ("s in ('s1', 's2', 'zz')", lambda r: r[2] in ("s1", "s2")),
        ("s not in ('s1', 's2')", lambda r: r[2] not in (None, "s1", "s2")),
        ("s > 's2'", lambda r: r[2] is not None and r[2] > "s2"),
        ("s is null", lambda r: r[2] is None),
        ("s is not null", lambda r: r[2] is not None),
        ("not (s is null or n > 0)", lambda r: r[2] is not None and r[3] is not None and r[3] <= 0),
        ("n between -10 and 20", lambda r: r[3] is not None and -10 <= r[3] <= 20),
        ("n not between -10 and 20", lambda r: r[3] is not None and not -10 <= r[3] <= 20),
        ("n = 10 or s = 's0'", lambda r: r[3] == 10 or r[2] == "s0"),
        ("n >= 10 and s = 's0'", lambda r: r[3] is not None and r[3] >= 10 and r[2] == "s0"),
        ("x = 0.0", lambda r: r[4] == 0),
        ("x <> 0.0", lambda r: r[4] is not None and r[4] != 0),
        ("x > 0.0", lambda r: r[4] is not None and not r[4] <= 0),
        ("x >= 0.0", lambda r: r[4] is not None and not r[4] < 0),
        ("x < 0.0", lambda r: r[4] is not None and r[4] < 0),
        ("x <= 0.0", lambda r: r[4] is not None and r[4] <= 0),
        ("d = 0.25", lambda r: r[5] == decimal.Decimal("0.25")),
        ("d < 0", lambda r: r[5] is not None and r[5] < 0),
        ("b = true", lambda r: r[7] is True),
        ("b <> true", lambda r: r[7] is False),
    ],
)
def test_an_index_leaves_exactly_the_rows_wanted(
    both: Sequence[FileStoreTable], text: str, test: Any
) -> None:
    assert verdict(both[1], text) == [k for k in range(40) if test(a_row(k))]


@pytest.mark.parametrize(
    "text",
    ["k = 3", "k > 3 or s = 's1'", "s like 's%'", "n = 1.5", "m is null", "s = 's1' or k = 1"],
)
def test_what_no_index_can_tell_stays(both: Sequence[FileStoreTable], text: str) -> None:
    assert verdict(both[0], text) is None


def test_unknown_is_never_true(both: Sequence[FileStoreTable]) -> None:
    table = both[0]
    path, file = the_file(table)
    for predicate in (
        Compare(Op.EQ, "s", None),
        Compare(Op.NE, "k", None),
        In("s", (None,)),
        Not(In("s", ("s1", None))),
    ):
        found = FileIndexFilter(table, predicate).selection(path, file)
        assert found is not None
        assert found.empty(0, 40)


def test_finer_timestamps_than_an_index_holds_are_not_lost(both: Sequence[FileStoreTable]) -> None:
    table = both[0]
    moment = "2024-01-01T00:00:00.000001"
    by_micros = {n: [k for k in range(40) if k % 5 != 1 and k % 4 == n] for n in range(4)}
    valid = sorted(row for rows in by_micros.values() for row in rows)
    assert verdict(table, f"t = '{moment}'") == by_micros[1]
    assert verdict(table, f"t = '{moment}500'") == by_micros[1]
    assert verdict(table, f"t <> '{moment}'") == valid
    assert verdict(table, f"t < '{moment}'") == sorted(by_micros[0] + by_micros[1])
    assert verdict(table, f"t > '{moment}500'") == sorted(
        by_micros[1] + by_micros[2] + by_micros[3]
    )


LITERALS: dict[str, st.SearchStrategy[Any]] = {
    "s": st.sampled_from(["s0", "s1", "s4", "s9", "", None]),
    "n": st.sampled_from([-40, -10, 0, 10, 35, 1 << 62, 2.5, -10.0, None]),
    "x": st.sampled_from([0.0, -0.0, 1.5, float("nan"), float("-inf"), 7, None]),
    "d": st.sampled_from([decimal.Decimal("0.25"), 0, -0.75, decimal.Decimal("0.001"), None]),
    "t": st.sampled_from(["2024-01-01T00:00:00.000001", "2024-01-01T00:00:00.000001500", None]),
    "b": st.sampled_from([True, False, None]),
    "k": st.integers(0, 45),
}


def conditions() -> st.SearchStrategy[Predicate]:
    def of(column: str) -> st.SearchStrategy[Predicate]:
        value = LITERALS[column]
        return st.one_of(
            st.builds(Compare, st.sampled_from(Op), st.just(column), value),
            st.builds(In, st.just(column), st.lists(value, min_size=1, max_size=3).map(tuple)),
            st.builds(Between, st.just(column), value, value),
            st.builds(IsNull, st.just(column)),
        )

    leaf = st.sampled_from(sorted(LITERALS)).flatmap(of) | st.just(Like("s", "s%"))
    return combined(leaf, max_leaves=5)


@settings(max_examples=40, deadline=None)
@given(predicate=conditions())
def test_a_filter_gives_the_same_rows_with_and_without_indexes(
    both: Sequence[FileStoreTable], predicate: Predicate
) -> None:
    embedded, separate, off = (rows_of(table, filter=predicate) for table in both)
    assert repr(embedded) == repr(separate) == repr(off)


# ------------------------------------------------------------------------------- skipping


def test_embedded_indexes_spare_opening_files(tmp_path: pathlib.Path) -> None:
    store = FaultyFileIO(LocalFileIO(durable=False))
    table = an_indexed_table(tmp_path, EMBEDDED, file_io=store)
    assert table.new_scan().with_filter(parse_predicate("s = 'zz'")).plan().splits == ()
    start = len(store.operations)
    assert rows_of(table, filter=parse_predicate("s = 'ss'")) == []
    assert not [path for _, path in store.operations[start:] if "/bucket-" in path]


def test_separate_indexes_spare_opening_data_files(tmp_path: pathlib.Path) -> None:
    store = FaultyFileIO(LocalFileIO(durable=False))
    table = an_indexed_table(tmp_path, SEPARATE, file_io=store)
    start = len(store.operations)
    assert rows_of(table, filter=parse_predicate("s = 's11'")) == []
    touched = {path for _, path in store.operations[start:] if "/bucket-" in path}
    assert {pathlib.PurePath(path).suffix for path in touched} == {".index"}
    off = table.with_options({"file-index.read.enabled": "false"})
    start = len(store.operations)
    assert rows_of(off, filter=parse_predicate("s = 's11'")) == []
    touched = {path for _, path in store.operations[start:] if "/bucket-" in path}
    assert {pathlib.PurePath(path).suffix for path in touched} == {".parquet"}


def test_conditions_on_partitions_need_no_index(tmp_path: pathlib.Path) -> None:
    store = FaultyFileIO(LocalFileIO(durable=False))
    columns = [("p", "STRING"), ("k", "INT"), ("v", "INT")]
    options = {**SEPARATE, "file-index.bsi.columns": "v"}
    table = make_table(
        tmp_path,
        columns=columns,
        keys=("p", "k"),
        partitions=("p",),
        options=options,
        file_io=store,
    )
    write(table, 1, [("+I", "a", 1, 1), ("+I", "b", 2, 2)])
    start = len(store.operations)
    assert rows_of(table, filter=parse_predicate("p = 'a'")) == [("a", 1, 1)]
    assert not [path for _, path in store.operations[start:] if path.endswith(".index")]
    assert rows_of(table, filter=parse_predicate("p = 'a' and v = 1")) == [("a", 1, 1)]
    assert [path for _, path in store.operations[start:] if path.endswith(".index")]


def test_a_newer_version_elsewhere_is_never_missed(tmp_path: pathlib.Path) -> None:
    table = an_indexed_table(tmp_path, EMBEDDED)
    changed = [("+U", *a_row(5)[1:2], "new", *a_row(5)[3:]), ("-D", *a_row(6)[1:])]
    write(table, 2, changed, compaction=False)
    old = [row for row in rows_of(table, filter=parse_predicate("s = 's0'")) if row[0] == 5]
    assert old == []
    assert [r[0] for r in rows_of(table, filter=parse_predicate("s = 'new'"))] == [5]
    assert rows_of(table, filter=parse_predicate("k = 6")) == []


def test_a_filter_travels_and_narrows_other_selections(tmp_path: pathlib.Path) -> None:
    table = an_indexed_table(tmp_path, SEPARATE)
    filtering = FileIndexFilter(FileStoreTable.open(table.layout.root), parse_predicate("s = 's0'"))
    index = pickle.loads(pickle.dumps(filtering))
    path, file = the_file(table)
    marked = Except(pyroaring.BitMap([0, 1]))
    narrowed = index.narrowed(marked, path, file)
    mask = narrowed.mask(0, 40)
    assert [row for row in range(40) if mask[row]] == [5, 15, 20, 25, 30, 35]
    assert index.narrowed(None, path, file) == index.selection(path, file)
    assert FileIndexFilter(table, None).narrowed(marked, path, file) is marked
    assert FileIndexFilter(table, None).narrowed(None, path, file) is None


# ----------------------------------------------------------------------- schema evolution


def test_columns_are_followed_by_id_and_only_as_long_as_they_read_as_stored(
    tmp_path: pathlib.Path,
) -> None:
    options = {**EMBEDDED, "file-index.bitmap.columns": "s", "file-index.bsi.columns": "n"}
    columns = [("k", "INT"), ("s", "VARCHAR(9)"), ("n", "INT")]
    table = make_table(tmp_path, columns=columns, options=options)
    write(table, 1, [("+I", k, f"s{k % 3}", k) for k in range(9)], full=True)
    assert verdict(table, "s = 's1'") == [1, 4, 7]
    table = table.alter([SetOption("file-index.bitmap.columns", "u"), RenameColumn("s", "u")])
    table = table.alter([AddColumn("s", parse_type("VARCHAR(9)"))])
    assert verdict(table, "u = 's1'") == [1, 4, 7]
    assert verdict(table, "s = 's1'") is None
    assert rows_of(table, filter=parse_predicate("s = 's1'")) == []
    table = table.alter([UpdateType("u", parse_type("VARCHAR(20)"))])
    assert verdict(table, "u = 's1'") == [1, 4, 7]
    table = table.alter([UpdateType("n", parse_type("BIGINT"))])
    assert verdict(table, "n > 6") is None
    assert [row[0] for row in rows_of(table, filter=parse_predicate("n > 6"))] == [7, 8]
    with pytest.raises(InvalidOptionError, match="does not exist"):
        table.alter([DropColumn("n")])


# --------------------------------------------------------------------------------- damage


def test_an_index_that_is_gone_or_damaged_is_reported(tmp_path: pathlib.Path) -> None:
    table = an_indexed_table(tmp_path, SEPARATE)
    path = pathlib.Path(f"{the_file(table)[0]}.index")
    data = path.read_bytes()
    wanted = parse_predicate("s = 's1' and n > 0")
    path.write_bytes(b"x" + data[1:])
    with pytest.raises(CorruptDataError, match=path.name):
        rows_of(table, filter=wanted)
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(CorruptDataError, match=path.name):
        rows_of(table, filter=wanted)
    path.unlink()
    with pytest.raises(CorruptDataError, match="is missing"):
        rows_of(table, filter=wanted)
    assert len(rows_of(table)) == 40
    off = table.with_options({"file-index.read.enabled": "false"})
    assert len(rows_of(off, filter=wanted)) == 3


def test_several_indexes_of_one_file_are_reported(tmp_path: pathlib.Path) -> None:
    table = an_indexed_table(tmp_path, SEPARATE)
    path, file = the_file(table)
    two = msgspec.structs.replace(file, extra_files=(*file.extra_files, "other.index"))
    with pytest.raises(CorruptDataError, match="several"):
        FileIndexFilter(table, parse_predicate("s = 's1'")).selection(path, two)


# ------------------------------------------------------------------------------ rewriting


def test_names_of_rewritten_indexes() -> None:
    name = "data-8f-0.parquet"
    assert next_index_name(name, None) == "data-8f-0.parquet.index"
    assert next_index_name(name, "data-8f-0.parquet.index") == "data-8f-0.parquet-1.index"
    assert next_index_name(name, "data-8f-0.parquet-1.index") == "data-8f-0.parquet-2.index"


def test_old_files_get_the_indexes_they_lack(tmp_path: pathlib.Path) -> None:
    plain = {"file-index.in-manifest-threshold": "1 b"}
    table = make_table(tmp_path, columns=COLUMNS, options=plain)
    write(table, 1, [a_row(k) for k in range(40)], full=True)
    rows = repr(rows_of(table))
    assert rewrite_file_index(table) is None
    before = the_file(table)[1]
    table = table.alter([SetOption("file-index.bitmap.columns", "s")])
    result = rewrite_file_index(table)
    assert result is not None
    assert result.append_snapshot_id is None
    snapshot = table.latest_snapshot()
    assert snapshot is not None
    assert (snapshot.id, snapshot.commit_kind) == (result.compact_snapshot_id, CommitKind.COMPACT)
    after = the_file(table)[1]
    assert after.extra_files == (f"{before.file_name}.index",)
    assert (after.file_name, after.level) == (before.file_name, before.level)
    assert verdict(table, "s = 's1'") == [k for k in range(40) if a_row(k)[2] == "s1"]
    first = container_of(table)
    assert rewrite_file_index(table) is None  # nothing lacks
    table = table.alter(
        [SetOption("file-index.bsi.columns", "n"), SetOption("file-index.bitmap.columns", "b")]
    )
    assert rewrite_file_index(table) is not None
    again = container_of(table)
    assert again["s"] == first["s"]
    assert {name: set(kinds) for name, kinds in again.items()} == {
        "s": {"bitmap"},
        "n": {"bsi"},
        "b": {"bitmap"},
    }
    assert the_file(table)[1].extra_files == (f"{before.file_name}-1.index",)
    assert repr(rows_of(table)) == rows
    expire(table)
    assert data_files(table) == {before.file_name, f"{before.file_name}-1.index"}
    assert repr(rows_of(reopened(table))) == rows
    write(table, 9, [a_row(50)], full=True)
    expire(table)
    name = the_file(table)[1].file_name
    assert data_files(table) == {name, f"{name}.index"}


def expire(table: FileStoreTable) -> None:
    expire_snapshots(
        table, now_ms=table.clock.now_ms(), retain_max=1, retain_min=1, time_retained_ms=0
    )


def test_indexes_move_between_metadata_and_files(tmp_path: pathlib.Path) -> None:
    table = an_indexed_table(tmp_path, EMBEDDED)
    inside = container_of(table)
    table = table.alter([SetOption("file-index.in-manifest-threshold", "1 b")])
    assert rewrite_file_index(table) is None
    assert rewrite_file_index(table, rebuild=True) is not None
    _, file = the_file(table)
    assert file.embedded_index is None
    assert file.extra_files == (f"{file.file_name}.index",)
    assert container_of(table) == inside
    table = table.alter([SetOption("file-index.in-manifest-threshold", "1 mb")])
    assert rewrite_file_index(table, rebuild=True) is not None
    _, file = the_file(table)
    assert file.extra_files == ()
    assert container_of(table) == inside


def test_only_some_partitions_are_rewritten(tmp_path: pathlib.Path) -> None:
    columns = [("p", "STRING"), ("k", "INT"), ("v", "INT")]
    table = make_table(tmp_path, columns=columns, keys=("p", "k"), partitions=("p",))
    write(table, 1, [("+I", "a", 1, 1), ("+I", "b", 1, 1)])
    table = table.alter([SetOption("file-index.bsi.columns", "v")])
    assert rewrite_file_index(table, {"p": "zz"}) is None
    assert rewrite_file_index(table, {"p": "a"}) is not None
    entries = newest_entries(table)
    indexed = {table.partition_path(e.partition): e.file.embedded_index for e in entries}
    assert indexed["p=a"] is not None
    assert indexed["p=b"] is None
    with pytest.raises(InvalidRequestError, match="partition"):
        rewrite_file_index(table, {"k": 1})


def test_renamed_and_retyped_columns_of_old_files(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path, columns=[("k", "INT"), ("v", "INT"), ("w", "INT")])
    write(table, 1, [("+I", k, k, k) for k in range(9)], full=True)
    table = table.alter(
        [
            RenameColumn("v", "u"),
            UpdateType("w", parse_type("BIGINT")),
            AddColumn("x", parse_type("INT")),
            SetOption("file-index.bsi.columns", "u,w,x"),
        ]
    )
    assert rewrite_file_index(table) is not None
    assert set(container_of(table)) == {"v"}
    assert verdict(table, "u >= 7") == [7, 8]
    assert rewrite_file_index(table) is None


def test_a_rewrite_that_fails_leaves_nothing_behind(tmp_path: pathlib.Path) -> None:
    options = {"file-index.in-manifest-threshold": "1 b", "bucket": "2"}
    table = make_table(tmp_path, columns=[("k", "INT"), ("v", "INT")], options=options)
    write(table, 1, [("+I", k, k) for k in range(20)], full=True)
    files = data_files(table)
    table = table.alter([SetOption("file-index.bsi.columns", "v")])
    last = newest_entries(table)[-1]
    path = pathlib.Path(table.data_path(last.partition, last.bucket, last.file.file_name))
    whole = path.read_bytes()
    path.write_bytes(whole[:-10])
    with pytest.raises(CorruptDataError):
        rewrite_file_index(table)
    assert data_files(table) == files
    path.write_bytes(whole)
    assert rewrite_file_index(table) is not None
    assert len(data_files(table)) == len(files) + 2


def test_a_compaction_meanwhile_makes_it_start_over(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"file-index.in-manifest-threshold": "1 b"}
    table = make_table(tmp_path, columns=[("k", "INT"), ("v", "INT")], options=options)
    write(table, 1, [("+I", k, k) for k in range(9)], compaction=False)
    write(table, 2, [("+I", k, -k) for k in range(5)], compaction=False)
    plain = table
    table = table.alter([SetOption("file-index.bsi.columns", "v")])
    seen = []

    def listed(*arguments: Any) -> Any:
        entries = live_entries(*arguments)
        seen.append(len(entries))
        if len(seen) == 1:
            write(plain, 3, full=True)
        return entries

    monkeypatch.setattr(rescale, "live_entries", listed)
    result = rewrite_file_index(table)
    assert result is not None
    assert not result.compaction_dropped
    assert seen == [2, 1]
    assert verdict(table, "v < -2") == [3, 4]
    name = the_file(table)[1].file_name
    expire(table)
    assert data_files(table) == {name, f"{name}.index"}


def test_a_compaction_loses_against_a_rewrite_and_nothing_is_lost(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path, columns=[("k", "INT"), ("v", "INT")])
    write(table, 1, [("+I", k, k) for k in range(9)], compaction=False)
    write(table, 2, [("+I", k, -k) for k in range(5)], compaction=False)
    messages = prepared(table, full=True)
    table = table.alter([SetOption("file-index.bsi.columns", "v")])
    assert rewrite_file_index(table) is not None
    assert table.new_commit("other").commit(messages, 3).compaction_dropped
    assert rows_of(table) == [(k, -k if k < 5 else k) for k in range(9)]
    assert rows_of(table, filter=parse_predicate("v > 6")) == [(7, 7), (8, 8)]


def test_indexes_and_deletion_vectors_speak_of_the_same_rows(tmp_path: pathlib.Path) -> None:
    options = {**SEPARATE, "bucket": "-1", "deletion-vectors.enabled": "true"}
    options["file-index.bitmap.columns"] = "s"
    table = make_table(tmp_path, columns=[("k", "INT"), ("s", "STRING")], keys=(), options=options)
    write(table, 1, [("+I", k, f"s{k % 3}") for k in range(20)])
    table.delete_where(parse_predicate("s = 's1' and k > 8"), "deleter")
    table.delete_where(parse_predicate("k < 3"), "deleter", identifier=2)
    wanted = parse_predicate("s = 's1' or s = 's0'")
    left = [(k, f"s{k % 3}") for k in range(3, 20) if k % 3 == 0 or (k % 3 == 1 and k <= 8)]
    assert rows_of(table, filter=wanted) == sorted(left, key=repr)
    assert rows_of(table, filter=parse_predicate("s = 's1' and k > 8")) == []
    assert rewrite_file_index(table, rebuild=True) is not None
    assert verdict(table, "s = 's1'") == list(range(1, 20, 3))
    assert rows_of(table, filter=wanted) == sorted(left, key=repr)
