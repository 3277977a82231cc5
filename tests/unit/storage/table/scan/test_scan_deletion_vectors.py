# SPDX-License-Identifier: Apache-2.0
import dataclasses
import json
import pathlib
import pickle
from typing import Any

import msgspec
import pytest

from storage.errors import CorruptDataError
from storage.format.metadata.schema_changes import SetOption
from storage.io.local import LocalFileIO
from storage.table.commit.live_files import index_entries
from storage.table.scan.predicate import parse_predicate
from storage.table.scan.scan import TableScan
from storage.table.table import FileStoreTable
from storage.table.write.rows.row_changes import delete_where
from tests.faulty_io import FaultyFileIO
from tests.table_kit import make_table, prepared, reopened, rows_of, write
from tests.unit.storage.golden_tables import GOLDEN, GoldenTable

CASES = ["dv_v1", "dv_bitmap64", "append_dv"]


def golden(case: str, store: FaultyFileIO | None = None) -> FileStoreTable:
    return FileStoreTable.open(str(GOLDEN / case / "table"), file_io=store)


def expected(case: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((GOLDEN / case / "expected" / "files.json").read_text())
    return content


def rows_at(table: FileStoreTable, scan: TableScan, snapshot_id: int) -> list[Any]:
    plan = scan.with_snapshot(snapshot_id).plan()
    return sorted(map(tuple, map(dict.values, table.new_read().to_table(plan).to_pylist())))


@pytest.mark.parametrize("case", [*CASES, "random_05"])
def test_rows_are_counted_right_with_and_without_columns(case: str) -> None:
    table = golden(case)
    for snapshot_id, content in expected(case).items():
        plan = table.new_scan().with_snapshot(int(snapshot_id)).plan()
        count = content["merged_row_count"]
        assert table.new_read([]).to_table(plan).num_rows == count
        counts = [split.live_row_count for split in plan.splits]
        if None not in counts:
            assert sum(counts) == count  # type: ignore[arg-type]
        if case.startswith("dv"):
            assert all(split.raw for split in plan.splits)
            assert None not in counts


def test_files_with_an_unknown_number_of_deletes_are_read_to_count_rows(
    tmp_path: pathlib.Path,
) -> None:
    table = make_table(tmp_path)
    (message,) = prepared(table, [("+I", 1, "a"), ("-D", 2, "b")], compaction=False)
    (file,) = message.data.new_files
    old = msgspec.structs.replace(file, delete_row_count=None)
    data = dataclasses.replace(message.data, new_files=(old,))
    table.new_commit("user").commit([dataclasses.replace(message, data=data)], 1)
    (split,) = table.new_scan().plan().splits
    assert split.raw
    assert split.live_row_count is None
    assert rows_of(table) == [(1, "a")]


def test_batch_reads_leave_level_0_out(tmp_path: pathlib.Path) -> None:
    table = golden("dv_v1")
    for append, compact in ((1, 2), (4, 5), (6, 7)):
        levels = {
            file.level
            for split in table.new_scan().with_snapshot(append).plan().splits
            for file in split.files
        }
        assert 0 not in levels
        scan = table.new_scan()
        assert rows_at(table, scan.with_all_levels(), append) == rows_at(table, scan, compact)
    assert table.new_scan().with_snapshot(1).plan().splits == ()


def test_merge_on_read_shows_level_0(tmp_path: pathlib.Path) -> None:
    table = GoldenTable("dv_v1").copied_to(tmp_path / "t")
    merging = table.alter([SetOption("deletion-vectors.merge-on-read", "true")])
    for append, compact in ((1, 2), (4, 5), (6, 7)):
        found = rows_at(merging, merging.new_scan(), append)
        assert found == rows_at(table, table.new_scan(), compact)
        assert found == rows_at(merging, merging.new_scan(), compact)


def test_vectors_count_only_while_they_are_enabled(tmp_path: pathlib.Path) -> None:
    table = GoldenTable("append_dv").copied_to(tmp_path / "t")
    assert table.to_arrow().num_rows == 15
    table = table.alter([SetOption("deletion-vectors.modifiable", "true")])
    plain = table.alter([SetOption("deletion-vectors.enabled", "false")])
    assert plain.to_arrow().num_rows == 25  # as Java: the rows must be compacted away before


@pytest.mark.parametrize("case", [*CASES, "random_05"])
@pytest.mark.parametrize("snapshot_id", [3, None])
def test_a_filter_gives_what_it_would_give_afterwards(case: str, snapshot_id: int | None) -> None:
    table = golden(case)
    if snapshot_id is not None and snapshot_id not in table.snapshots.ids():
        pytest.skip("no such snapshot")
    rows = table.to_arrow(snapshot=snapshot_id)
    for name in rows.column_names:
        for value in rows[name].to_pylist()[:4]:
            if not isinstance(value, (int, str)) or isinstance(value, bool):
                continue
            text = repr(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"
            for operator in ("=", "<=", "<>"):
                predicate = parse_predicate(f"{name} {operator} {text}")
                found = table.to_arrow(snapshot=snapshot_id, filter=predicate)
                keep = {"=": value.__eq__, "<=": value.__ge__, "<>": value.__ne__}[operator]
                wanted = [
                    row for row in rows.to_pylist() if row[name] is not None and keep(row[name])
                ]
                assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, wanted))


def test_files_are_pruned_by_any_column_and_vectors_not_read_for_them() -> None:
    store = FaultyFileIO(LocalFileIO(durable=False))
    table = golden("dv_v1", store)
    rows = table.to_arrow().to_pylist()
    plan = table.new_scan().plan()
    (split,) = plan.splits
    assert len(split.files) == 3
    name = next(name for name in table.schema.field_names if name not in table.schema.primary_keys)
    sizes = set()
    for row in rows:
        value = row[name]
        if value is None:
            continue
        text = f"'{value}'" if isinstance(value, str) else str(value)
        plan = table.new_scan().with_filter(parse_predicate(f"{name} = {text}")).plan()
        files = {file.file_name for split in plan.splits for file in split.files}
        marked = {file for split in plan.splits for file, _ in split.deletion_vectors}
        assert marked <= files
        sizes.add(len(files))
    assert min(sizes) < 3


def test_an_index_file_is_opened_once_per_split() -> None:
    store = FaultyFileIO(LocalFileIO(durable=False))
    table = golden("append_dv", store)
    plan = table.new_scan().plan()
    assert sum(len(split.deletion_vectors) for split in plan.splits) == 2
    start = len(store.operations)
    for split in plan.splits:
        assert list(table.new_read().to_batches(pickle.loads(pickle.dumps(split))))
    opened = [path for operation, path in store.operations[start:] if "/index/" in path]
    assert len(opened) == len(plan.splits)


def test_files_without_a_row_left_are_not_opened(tmp_path: pathlib.Path) -> None:
    store = FaultyFileIO(LocalFileIO(durable=False))
    options = {"bucket": "-1", "deletion-vectors.enabled": "true"}
    table = make_table(tmp_path, keys=(), options=options, file_io=store)
    for number in range(3):
        write(table, number, [("+I", number, "a"), ("+I", number + 10, "b")], compaction=False)
    delete_where(table, parse_predicate("k = 1 OR k = 11 OR k = 2"), "d")
    start = len(store.operations)
    assert rows_of(reopened(table, file_io=store)) == [(0, "a"), (10, "b"), (12, "b")]
    opened = {
        path
        for operation, path in store.operations[start:]
        if operation == "open_input" and "/bucket-" in path
    }
    assert len(opened) == 2


def test_damage_of_an_index_file_is_named(tmp_path: pathlib.Path) -> None:
    table = GoldenTable("dv_v1").copied_to(tmp_path / "t")
    (entry,) = index_entries(table, table.latest_snapshot())
    path = pathlib.Path(table.layout.index_file(entry.file.file_name))
    whole = path.read_bytes()
    (vector, *_) = entry.file.deletion_vectors or ()
    broken = bytearray(whole)
    broken[vector.offset + 12] ^= 1
    for content in (bytes(broken), whole[: vector.offset + 10], b""):
        path.write_bytes(content)
        with pytest.raises(CorruptDataError) as raised:
            reopened(table).to_arrow()
        assert raised.value.context["path"] == str(path)
        assert raised.value.context["offset"] == vector.offset
    path.unlink()
    with pytest.raises(CorruptDataError, match="names a missing file") as raised:
        reopened(table).to_arrow()
    assert raised.value.context["path"] == str(path)


def test_a_range_that_lies_is_found(tmp_path: pathlib.Path) -> None:
    table = GoldenTable("append_dv").copied_to(tmp_path / "t")
    (entry,) = index_entries(table, table.latest_snapshot())
    path = pathlib.Path(table.layout.index_file(entry.file.file_name))
    whole = path.read_bytes()
    first, second = entry.file.deletion_vectors or ()
    if first.length == second.length:
        end = first.offset + first.length + 8
        swapped = whole[:1] + whole[second.offset :] + whole[1:end]
        path.write_bytes(swapped)
    else:
        path.write_bytes(whole[:1] + whole[second.offset :] + whole[1 : second.offset])
    with pytest.raises(CorruptDataError):
        reopened(table).to_arrow()
