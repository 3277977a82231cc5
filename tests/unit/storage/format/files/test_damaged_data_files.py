# SPDX-License-Identifier: Apache-2.0
"""Data files that are not what their metadata says are refused, in every format."""

import dataclasses
import pathlib
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from storage.errors import CorruptDataError
from storage.format.files.data_file import read_key_values, read_rows
from storage.format.metadata.file_meta import DataFileMeta
from storage.format.metadata.schema import TableSchema
from storage.format.types.types import DataField, parse_type
from storage.io.local import LocalFileIO
from tests.table_kit import make_table, write

FORMATS = ("parquet", "orc", "avro")
_ROWS = 50


@dataclasses.dataclass(frozen=True)
class Written:
    """One data file and what is known of it."""

    path: str
    meta: DataFileMeta
    schema: TableSchema

    def rows(self, *, read: Callable[..., Any] = read_rows, **changed: Any) -> int:
        """How many rows come out, with other metadata or another schema than the file's."""
        arguments = {
            name: changed.pop(name) for name in ("columns", "selection") if name in changed
        }
        meta = changed.pop("meta", self.meta)
        schema = changed.pop("schema", self.schema)
        batches = read(LocalFileIO(), self.path, meta, schema, schema, **arguments)
        return sum(batch.num_rows for batch in batches)


@pytest.fixture(params=FORMATS)
def written(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Written:
    table = make_table(tmp_path, options={"file.format": request.param})
    write(table, 1, [("+I", number, f"text {number}") for number in range(_ROWS)])
    (split,) = table.new_scan().plan().splits
    (file,) = split.files
    path = table.data_path(split.partition, split.bucket, file.file_name)
    return Written(path, file, table.schema)


def test_a_sound_file_is_read(written: Written) -> None:
    assert written.rows() == written.rows(read=read_key_values) == _ROWS
    assert written.rows(columns=["v"]) == written.rows(columns=[]) == _ROWS


def test_a_file_that_was_cut_is_refused_before_it_is_decoded(written: Written) -> None:
    path = pathlib.Path(written.path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CorruptDataError, match="shorter than recorded") as caught:
        written.rows()
    assert caught.value.context["path"] == written.path
    assert caught.value.context["expected"] == written.meta.file_size


@pytest.mark.parametrize("more", [-1, 1])
@pytest.mark.parametrize("read", [read_rows, read_key_values])
def test_another_number_of_rows_is_told_where_all_are_read(
    written: Written, more: int, read: Callable[..., Any]
) -> None:
    meta = msgspec.structs.replace(written.meta, row_count=_ROWS + more)
    with pytest.raises(CorruptDataError, match="row count differs") as caught:
        written.rows(read=read, meta=meta)
    assert caught.value.context["path"] == written.path
    with pytest.raises(CorruptDataError, match="row count differs"):
        written.rows(read=read, meta=meta, columns=["v"])


def test_a_column_of_the_schema_that_the_file_has_not_is_told(written: Written) -> None:
    more = DataField(id=9, name="w", type=parse_type("INT"))
    schema = dataclasses.replace(written.schema, fields=(*written.schema.fields, more))
    with pytest.raises(CorruptDataError, match="lacks a column of its schema") as caught:
        written.rows(schema=schema)
    assert caught.value.context["column"] == "w"
    assert written.rows(schema=schema, columns=["v"]) == _ROWS
    meta = msgspec.structs.replace(written.meta, write_cols=("k", "v"))
    assert written.rows(schema=schema, meta=meta) == _ROWS
