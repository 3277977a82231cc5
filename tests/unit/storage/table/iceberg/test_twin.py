# SPDX-License-Identifier: Apache-2.0
"""Iceberg metadata beside a table: read by a naive reader; killed at every operation."""

import datetime as dt
import decimal
import itertools
import json
import pathlib
import struct
from typing import Any

import pytest

from storage.errors import InvalidOptionError, UnsupportedFeatureError
from storage.format.metadata.schema_changes import AddColumn, RemoveOption, SetOption, UpdateType
from storage.format.types.types import parse_type
from storage.io.local import LocalFileIO
from storage.table.table import FileStoreTable
from tests.crash.deaths import forget_caches
from tests.faulty_io import DEATHS, Fault, FaultyFileIO, SimulatedCrash
from tests.table_kit import make_table, reopened, rows_of, write
from tests.unit.storage.table.iceberg.naive_reader import (
    data_files,
    document,
    files_of,
    newest,
    rows,
)

STORAGE = {"metadata.iceberg.storage": "table-location"}
VECTORS = {
    **STORAGE,
    "metadata.iceberg.format-version": "3",
    "deletion-vectors.enabled": "true",
    "num-sorted-run.compaction-trigger": "3",
}


def make(directory: pathlib.Path, options: dict[str, str], **others: Any) -> FileStoreTable:
    return make_table(directory, options=options, **others)


def fill(table: FileStoreTable, commits: int = 4, first: int = 1) -> None:
    for number in range(first, first + commits):
        batch = [("+I", key, f"v{number}") for key in range(number, number + 6)]
        write(table, number, [*batch, ("-D", number + 1, None)])


def seen(table: FileStoreTable) -> list[tuple[Any, ...]]:
    return rows(newest(table.layout.root))


def metadata_files(table: FileStoreTable) -> set[str]:
    return {path.name for path in (pathlib.Path(table.layout.root) / "metadata").iterdir()}


def test_every_snapshot_can_be_read(tmp_path):
    table = make(tmp_path, VECTORS)
    fill(table)
    for snapshot_id in table.snapshots.ids():
        expected = rows_of(table, snapshot=snapshot_id)
        assert rows(newest(table.layout.root), snapshot_id) == expected
    assert table.sync_iceberg() == 0


def test_rows_keep_their_ids_and_no_two_have_the_same(tmp_path):
    table = make(tmp_path, {**VECTORS, "bucket": "2"})
    fill(table, 8)
    found = document(newest(table.layout.root))
    free, known = 0, {}
    for snapshot in found["snapshots"]:
        assert snapshot["first-row-id"] == free
        new = 0
        for path, file in data_files(snapshot).items():
            if path not in known:
                known[path] = file["first_row_id"]
                assert free <= file["first_row_id"]
                new += file["record_count"]
            assert file["first_row_id"] == known[path]
        ranges = sorted(
            (file["first_row_id"], file["first_row_id"] + file["record_count"])
            for file in data_files(snapshot).values()
        )
        assert all(one[1] <= two[0] for one, two in itertools.pairwise(ranges))
        assert snapshot["added-rows"] == new
        free += new
    assert found["next-row-id"] == free
    assert known


def test_summaries_say_what_was_done_and_what_is_there(tmp_path):
    table = make(tmp_path, {**VECTORS, "bucket": "-1"}, keys=())
    for number in (1, 2):
        write(table, number, [("+I", key, "v") for key in range(3)])
    table.delete_where("k = 1", "test")
    table.delete_where("k = 2", "test")
    table.truncate()
    snapshots = document(newest(table.layout.root))["snapshots"]
    operations = [one["summary"]["operation"] for one in snapshots]
    assert operations == ["append", "append", "delete", "delete", "delete"]
    for snapshot in snapshots:
        files, vectors = data_files(snapshot).values(), data_files(snapshot, 1).values()
        counts = {
            "data-files": len(files),
            "records": sum(file["record_count"] for file in files),
            "delete-files": len(vectors),
            "position-deletes": sum(file["record_count"] for file in vectors),
        }
        found = {name: int(snapshot["summary"][f"total-{name}"]) for name in counts}
        assert found == counts
    assert snapshots[3]["summary"]["added-position-deletes"] == "4"
    assert snapshots[3]["summary"]["removed-position-deletes"] == "2"


_VALUES = {
    "n": ("INT", [5, -7, None], lambda data: struct.unpack("<i", data)[0]),
    "big": ("BIGINT", [2**40, -(2**41), 3], lambda data: struct.unpack("<q", data)[0]),
    "tiny": ("TINYINT", [-3, None, 4], lambda data: struct.unpack("<i", data)[0]),
    "price": (
        "DECIMAL(10, 2)",
        [decimal.Decimal("-1.28"), decimal.Decimal("1.27"), None],
        lambda data: decimal.Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-2),
    ),
    "wide": (
        "DECIMAL(30, 5)",
        [decimal.Decimal(10) ** 20, -(decimal.Decimal(10) ** 21), None],
        lambda data: decimal.Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-5),
    ),
    "at3": (
        "TIMESTAMP(3)",
        [dt.datetime(1969, 12, 31, 23, 59, 59, 999_000), dt.datetime(2026, 1, 2), None],  # noqa: DTZ001
        lambda data: dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=_long(data)),  # noqa: DTZ001
    ),
    "at6": (
        "TIMESTAMP(6)",
        [dt.datetime(1969, 12, 31, 23, 59, 59, 999_999), dt.datetime(2026, 1, 2), None],  # noqa: DTZ001
        lambda data: dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=_long(data)),  # noqa: DTZ001
    ),
    "day": (
        "DATE",
        [dt.date(1969, 12, 31), dt.date(2026, 1, 2), None],
        lambda data: dt.date(1970, 1, 1) + dt.timedelta(days=struct.unpack("<i", data)[0]),
    ),
    "s": ("STRING", ["b", "é", None], bytes.decode),
    "raw": ("BYTES", [b"\x00", b"\xff", None], bytes),
    "ok": ("BOOLEAN", [True, False, None], lambda data: data != b"\0"),
}
_WITHOUT_BOUNDS = {
    "d": ("DOUBLE", [float("nan"), 1.0, None]),
    "f": ("FLOAT", [float("nan"), -1.0, None]),
    "r": ("ROW<x INT>", [{"x": 1}, None, {"x": None}]),
    "many": ("ARRAY<INT>", [[1, None], None, []]),
}


def _long(data: bytes) -> int:
    return int(struct.unpack("<q", data)[0])


def test_bounds_and_null_counts_are_true(tmp_path):
    columns = {name: one[:2] for name, one in _VALUES.items()} | _WITHOUT_BOUNDS
    table = make(
        tmp_path,
        {**STORAGE, "bucket": "-1"},
        columns=[(name, text) for name, (text, _) in columns.items()],
        keys=(),
    )
    rows_written = zip(*(values for _, values in columns.values()), strict=True)
    write(table, 1, [("+I", *row) for row in rows_written])
    (file,) = data_files(document(newest(table.layout.root))["snapshots"][-1]).values()
    ids = {field.id: field.name for field in table.schema.fields}
    found = {
        member: {ids[one["key"]]: one["value"] for one in file[member]}
        for member in ("value_counts", "null_value_counts", "lower_bounds", "upper_bounds")
    }
    assert found["lower_bounds"].keys() == found["upper_bounds"].keys() == _VALUES.keys()
    counted = {name: one for name, one in columns.items() if name not in ("r", "many")}
    assert found["value_counts"] == dict.fromkeys(counted, 3)
    for name, (_, values) in counted.items():
        assert found["null_value_counts"][name] == values.count(None)
    for name, (_, values, decode) in _VALUES.items():
        there = [value for value in values if value is not None]
        assert decode(found["lower_bounds"][name]) == min(there), name
        assert decode(found["upper_bounds"][name]) == max(there), name


def test_field_ids_begin_at_1(tmp_path):
    table = make(tmp_path, STORAGE)
    fill(table, 1)
    (schema,) = document(newest(table.layout.root))["schemas"]
    assert [field["id"] for field in schema["fields"]] == [1, 2]


def test_a_table_that_gets_metadata_later_has_its_newest_snapshot_in_it(tmp_path):
    table = make(tmp_path, STORAGE).alter([RemoveOption("metadata.iceberg.storage")])
    fill(table)
    table = table.alter([SetOption("metadata.iceberg.storage", "table-location")])
    write(table, 9, [("+I", 1, "w")], full=True)
    assert seen(table) == rows_of(table)
    ids = [one["snapshot-id"] for one in document(newest(table.layout.root))["snapshots"]]
    assert ids == [one for one in table.snapshots.ids() if one > 4]


def test_metadata_that_fell_behind_is_published_version_by_version(tmp_path):
    table = make(tmp_path, VECTORS)
    fill(table, 2)
    silent = table.alter([RemoveOption("metadata.iceberg.storage")])
    fill(silent, 3, first=3)
    behind = table.latest().alter([SetOption("metadata.iceberg.storage", "table-location")])
    write(behind, 9, [("+I", 1, "w")])
    for snapshot_id in behind.snapshots.ids():
        expected = rows_of(behind, snapshot=snapshot_id)
        assert rows(newest(table.layout.root), snapshot_id) == expected


def test_tags_are_references(tmp_path):
    table = make(tmp_path, VECTORS)
    fill(table, 2)
    table.create_tag("one")
    refs = document(newest(table.layout.root))["refs"]
    assert refs["one"] == {"snapshot-id": table.latest_snapshot().id, "type": "tag"}
    table.delete_tag("one")
    assert "one" not in document(newest(table.layout.root))["refs"]


def test_branches_are_references(tmp_path):
    table = make(tmp_path, VECTORS)
    fill(table, 2)
    start = table.latest_snapshot().id
    table.create_branch("b", snapshot_id=start)
    branch = table.at_branch("b")
    fill(branch, 2, first=30)
    fill(table, 2, first=3)
    metadata = document(newest(table.layout.root))
    ref = metadata["refs"]["b"]
    assert ref["type"] == "branch"
    assert rows(metadata, ref["snapshot-id"]) == rows_of(branch)
    assert seen(table) == rows_of(table)
    for snapshot_id in table.snapshots.ids():
        assert rows(metadata, snapshot_id) == rows_of(table, snapshot=snapshot_id)
    table.expire_snapshots(retain_min=1, retain_max=1, time_retained_ms=0)
    branch.expire_snapshots(retain_min=1, retain_max=1, time_retained_ms=0)
    table.clock.advance(10**12)
    table.remove_orphan_files(older_than_ms=table.clock.now_ms() - 1)
    metadata = document(newest(table.layout.root))
    assert rows(metadata, metadata["refs"]["b"]["snapshot-id"]) == rows_of(branch)
    table.rename_branch("b", "c")
    metadata = document(newest(table.layout.root))
    assert metadata["refs"].keys() == {"c", "main"}
    assert rows(metadata, metadata["refs"]["c"]["snapshot-id"]) == rows_of(table.at_branch("c"))
    table.fast_forward("c")
    assert seen(reopened(table)) == rows_of(table.at_branch("c"))
    table.drop_branch("c")
    assert document(newest(table.layout.root))["refs"].keys() == {"main"}
    assert table.sync_iceberg() == 0


def test_a_branch_of_other_columns_is_left_out(tmp_path, caplog):
    table = make(tmp_path, VECTORS)
    fill(table, 1)
    table.create_branch("b", snapshot_id=table.latest_snapshot().id)
    branch = table.at_branch("b").alter([AddColumn("more", parse_type("INT"))])
    write(branch, 9, [("+I", 1, "x", 3)])
    assert document(newest(table.layout.root))["refs"].keys() == {"main"}
    assert "the table lacks its columns" in caplog.text


def test_expired_snapshots_go_with_their_metadata_and_tagged_ones_stay(tmp_path):
    table = make(tmp_path, {**VECTORS, "metadata.iceberg.previous-versions-max": "0"})
    fill(table, 2)
    tagged = table.latest_snapshot().id
    table.create_tag("kept")
    expected = rows_of(table)
    fill(table, 8, first=3)
    before = metadata_files(table)
    table.expire_snapshots(retain_min=1, retain_max=1, time_retained_ms=0)
    found = document(newest(table.layout.root))
    latest = table.latest_snapshot().id
    assert [one["snapshot-id"] for one in found["snapshots"]] == [tagged, latest]
    assert rows(newest(table.layout.root), tagged) == expected
    assert seen(table) == rows_of(table)
    assert metadata_files(table) < before
    assert sum(name.startswith("snap-") for name in metadata_files(table)) == 2
    assert sum(name.endswith(".metadata.json") for name in metadata_files(table)) == 1


def test_a_rollback_takes_later_versions_away(tmp_path):
    table = make(tmp_path, VECTORS)
    fill(table, 2)
    target, expected = table.latest_snapshot().id, rows_of(table)
    table.clock.advance(200_000)
    fill(table, 2, first=3)
    table.rollback_to(target)
    assert newest(table.layout.root).name == f"v{target}.metadata.json"
    assert seen(table) == expected
    table = reopened(table)
    fill(table, 2, first=7)
    assert seen(table) == rows_of(table)


def test_the_log_of_versions_forgets_those_that_a_rollback_took(tmp_path):
    """Iceberg's library for Java refuses logs whose times go back by more than a minute."""
    table = make(tmp_path, {**VECTORS, "metadata.iceberg.previous-versions-max": "9"})
    fill(table, 2)
    target = table.latest_snapshot().id
    for key in (3, 4, 5):
        table.clock.advance(200_000)
        fill(table, 1, first=key)
    table.rollback_to(target)
    table = reopened(table)
    for key in (7, 8, 9):
        table.clock.advance(10_000)
        fill(table, 1, first=key)
        path = newest(table.layout.root)
        log = json.loads(path.read_text())["metadata-log"]
        times = [entry["timestamp-ms"] for entry in log]
        assert times == sorted(times)
        names = [pathlib.Path(entry["metadata-file"]).name for entry in log] + [path.name]
        numbers = [int(name.partition(".")[0].removeprefix("v")) for name in names]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def test_orphan_removal_leaves_the_metadata(tmp_path):
    table = make(tmp_path, VECTORS)
    fill(table)
    before = metadata_files(table)
    table.clock.advance(10**12)
    table.remove_orphan_files(older_than_ms=table.clock.now_ms() - 1)
    assert metadata_files(table) == before


def test_orphan_removal_takes_what_no_version_needs(tmp_path):
    table = make(tmp_path, VECTORS)
    fill(table, 3)
    before = metadata_files(table)
    directory = pathlib.Path(table.layout.root) / "metadata"
    lost = {
        "00000000-0000-0000-0000-000000000001-m0.avro",
        "snap-9-00000000-0000-0000-0000-000000000001.avro",
        "dv-00000000-0000-0000-0000-000000000001.puffin",
    }
    for name in (*lost, "00001-of-a-server.metadata.json"):
        (directory / name).write_bytes(b"left by a crash")
    table.clock.advance(10**12)
    removed = table.remove_orphan_files(older_than_ms=table.clock.now_ms() - 1)
    assert {pathlib.Path(path).name for path in removed.paths} == lost
    assert metadata_files(table) == before | {"00001-of-a-server.metadata.json"}
    for snapshot_id in table.snapshots.ids():
        expected = rows_of(table, snapshot=snapshot_id)
        assert rows(newest(table.layout.root), snapshot_id) == expected


def test_old_versions_name_what_orphan_removal_keeps(tmp_path):
    table = make(tmp_path, VECTORS)
    fill(table, 3)
    old = sorted((pathlib.Path(table.layout.root) / "metadata").glob("v*.metadata.json"))
    table.clock.advance(10**12)
    table.remove_orphan_files(older_than_ms=table.clock.now_ms() - 1)
    for path in old:
        assert rows(path) == rows_of(table, snapshot=document(path)["current-snapshot-id"])


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"deletion-vectors.enabled": "true"}, InvalidOptionError, "format version"),
        ({"metadata.iceberg.format-version": "4"}, InvalidOptionError, "2 or 3"),
        ({"file.format": "orc"}, UnsupportedFeatureError, "Parquet"),
        ({"metadata.iceberg.storage": "hive-catalog"}, InvalidOptionError, "address"),
        ({"metadata.iceberg.storage": "rest-catalog"}, InvalidOptionError, "address"),
        (
            {"metadata.iceberg.storage": "rest-catalog", "metadata.iceberg.rest.url": "x"},
            InvalidOptionError,
            "rest.uri",
        ),
    ],
)
def test_options_that_do_not_fit_are_refused(tmp_path, options, error, text):
    with pytest.raises(error, match=text):
        fill(make(tmp_path, {**STORAGE, **options}))


def test_types_that_iceberg_lacks_are_refused_by_name(tmp_path):
    with pytest.raises(UnsupportedFeatureError, match="at"):
        make(tmp_path, STORAGE, columns=(("k", "INT"), ("at", "TIME")))


def test_a_table_whose_field_ids_begin_at_0_is_refused(tmp_path):
    table = make(tmp_path, {})
    with pytest.raises(UnsupportedFeatureError, match="begin at 0"):
        table.alter([SetOption("metadata.iceberg.storage", "table-location")])


def test_a_change_of_type_that_iceberg_lacks_is_refused(tmp_path):
    table = make(tmp_path, STORAGE, columns=(("k", "INT"), ("v", "INT")))
    with pytest.raises(UnsupportedFeatureError, match="old files"):
        table.alter([UpdateType("v", parse_type("STRING"))])


@pytest.mark.parametrize(
    ("path", "type_"),
    [(("r", "x"), "STRING"), (("m", "value"), "DOUBLE"), (("a", "element"), "STRING")],
)
def test_a_change_of_type_inside_a_column_is_refused(tmp_path, path, type_):
    nested = (("r", "ROW<x INT, y STRING>"), ("m", "MAP<STRING, INT>"), ("a", "ARRAY<INT>"))
    table = make(tmp_path, STORAGE, columns=(("k", "INT"), *nested))
    with pytest.raises(UnsupportedFeatureError, match="old files"):
        table.alter([UpdateType(path, parse_type(type_))])
    table.alter([UpdateType(path, parse_type("BIGINT"))])


def _story(table: FileStoreTable) -> None:
    fill(table, 3)
    table.create_tag("one")
    table.expire_snapshots(retain_min=1, retain_max=2, time_retained_ms=0)
    fill(table, 1, first=4)


def _operations(directory: pathlib.Path) -> int:
    store = FaultyFileIO(LocalFileIO(durable=False))
    _story(reopened(make(directory, VECTORS), file_io=store))
    return len(store.operations)


def _named(path: pathlib.Path) -> set[str]:
    """Names of the metadata files that some version in the log of a version names, and the hint."""
    logged = [pathlib.Path(one["metadata-file"]) for one in document(path)["metadata-log"]]
    found = {"version-hint.text"}
    for one in (path, *(each for each in logged if each.exists())):
        for snapshot in document(one)["snapshots"]:
            found |= files_of(snapshot)
    return found


def _versions(table: FileStoreTable) -> set[str]:
    logged = document(newest(table.layout.root))["metadata-log"]
    return {pathlib.Path(one["metadata-file"]).name for one in logged} | {
        newest(table.layout.root).name
    }


def _check_after_death(directory: pathlib.Path, fault: Fault) -> None:
    table = make(directory, VECTORS)
    store = FaultyFileIO(LocalFileIO(durable=False), fault)
    with pytest.raises(SimulatedCrash):
        _story(reopened(table, file_io=store))
    forget_caches()
    survivor = reopened(table)
    hint = pathlib.Path(table.layout.root) / "metadata" / "version-hint.text"
    if hint.exists():
        version = int(hint.read_text())
        latest = survivor.latest_snapshot().id
        assert version <= latest
        assert seen(survivor) == rows_of(survivor, snapshot=version)
    fill(survivor, 1, first=20)
    assert seen(survivor) == rows_of(survivor)
    assert survivor.sync_iceberg() == 0
    survivor.clock.advance(10**12)
    survivor.remove_orphan_files(older_than_ms=survivor.clock.now_ms() - 1)
    for one in document(newest(survivor.layout.root))["snapshots"]:
        if one["snapshot-id"] in survivor.snapshots.ids():
            expected = rows_of(survivor, snapshot=one["snapshot-id"])
            assert rows(newest(survivor.layout.root), one["snapshot-id"]) == expected
    needed = _named(newest(survivor.layout.root))
    assert metadata_files(survivor) - needed <= _versions(survivor)


def test_death_at_some_operations_shows_no_wrong_row(tmp_path):
    total = _operations(tmp_path / "count")
    for at, mode in zip(range(7, total, 23), itertools.cycle(DEATHS), strict=False):
        _check_after_death(tmp_path / str(at), Fault(at, mode))


@pytest.mark.full
@pytest.mark.parametrize("mode", DEATHS)
def test_death_at_any_operation_shows_no_wrong_row(tmp_path, mode):
    total = _operations(tmp_path / "count")
    for at in range(1, total):
        _check_after_death(tmp_path / str(at), Fault(at, mode))
