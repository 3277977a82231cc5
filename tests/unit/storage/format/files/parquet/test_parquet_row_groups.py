# SPDX-License-Identifier: Apache-2.0
"""Which row groups are read, and that reading several together changes nothing but the requests."""

import io
import pathlib
from typing import Any

import numpy as np
import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap

from storage.format.files import parquet as parquet_row_groups
from storage.format.files.parquet import read_batches
from storage.format.files.row_selection import Only
from storage.format.types.types import DataField, type_from_arrow
from storage.io.file_io import FileIO
from storage.io.local import LocalFileIO
from storage.io.object_store import ObjectStoreFileIO

_ROWS, _GROUP, _COLUMNS = 40_000, 4_000, 8
_GROUP_BYTES = _GROUP * 8
_TYPES = {"list": pa.list_(pa.int64())}


@pytest.fixture(scope="module")
def table() -> pa.Table:
    rng = np.random.default_rng(3)
    columns = {f"c{i}": rng.integers(0, 1 << 62, _ROWS) for i in range(_COLUMNS)}
    lists = pa.array([[int(one)] * (one % 3) for one in range(_ROWS)])
    return pa.table({**columns, "list": lists})


@pytest.fixture(scope="module")
def stored(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=_GROUP, compression="none", use_dictionary=False)
    return sink.getvalue()


@pytest.fixture(params=["near", "distant"])
def place(request: pytest.FixtureRequest, tmp_path: pathlib.Path, stored: bytes) -> Any:
    store: FileIO = LocalFileIO(durable=False)
    path = str(tmp_path / "f.parquet")
    if request.param == "distant":
        store, path = ObjectStoreFileIO.in_memory(), "s3://memory/f.parquet"
    store.write_bytes(path, stored)
    return store, path


def _read(place: tuple[FileIO, str], columns: list[str], **how: Any) -> pa.Table:
    fields = [
        DataField(id=i, name=name, type=type_from_arrow(_TYPES.get(name, pa.int64())))
        for i, name in enumerate(columns)
    ]
    batches = list(read_batches(*place, fields, batch_rows=1_500, **how))
    return pa.Table.from_batches(batches).combine_chunks()


@pytest.mark.parametrize("together", [1, 5 * _GROUP_BYTES, 1 << 30])
@pytest.mark.parametrize("columns", [["c1"], ["c0", "c5", "list"]])
def test_the_same_rows_whatever_is_read_together(
    monkeypatch: pytest.MonkeyPatch,
    place: tuple[FileIO, str],
    table: pa.Table,
    columns: list[str],
    together: int,
) -> None:
    monkeypatch.setattr(parquet_row_groups, "_READ_TOGETHER", together)
    assert _read(place, columns).equals(table.select(columns).combine_chunks())
    rows = [5, 9_000, 9_001, 20_000, 39_999]
    found = _read(place, columns, selection=Only(BitMap(rows)))
    assert found.equals(table.select(columns).take(rows).combine_chunks())
    lowest = min(table["c1"].to_pylist())
    kept = _read(place, columns, keep_row_group=lambda ranges: ranges["c1"].minimum == lowest)
    group = table["c1"].to_pylist().index(lowest) // _GROUP
    assert kept.equals(table.select(columns).slice(group * _GROUP, _GROUP).combine_chunks())


def test_neighbouring_columns_of_a_distant_file_come_with_few_requests(
    monkeypatch: pytest.MonkeyPatch, stored: bytes, table: pa.Table
) -> None:
    store = ObjectStoreFileIO.in_memory()
    path = "s3://memory/f.parquet"
    store.write_bytes(path, stored)
    asked: list[int] = []
    real = obstore.get_range

    def counted(*arguments: Any, start: int, length: int) -> Any:
        asked.append(length)
        return real(*arguments, start=start, length=length)

    monkeypatch.setattr(obstore, "get_range", counted)
    found = _read((store, path), table.column_names)
    assert found.num_rows == _ROWS
    assert len(asked) <= 3
    assert sum(asked) <= len(stored)


def test_dates_that_python_cannot_hold_have_no_bounds() -> None:
    """Databases have infinite dates; conditions on other columns must not fail on them."""
    days = pa.array([0, 2_146_033_979], pa.int32())
    far = pa.table({"id": [1, 2], "day": days.view(pa.date32())})
    sink = io.BytesIO()
    pq.write_table(far, sink)
    metadata = pq.ParquetFile(io.BytesIO(sink.getvalue())).metadata
    seen: list[Any] = []

    def keep(ranges: Any) -> bool:
        seen.append((ranges["id"].maximum, ranges["day"].maximum, ranges["day"].row_count))
        return True

    assert list(parquet_row_groups.wanted_runs(metadata, keep, None))
    assert seen == [(2, None, 2)]
