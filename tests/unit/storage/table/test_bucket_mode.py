# SPDX-License-Identifier: Apache-2.0
"""Kinds of tables by their buckets, bucket functions, and postponed buckets."""

import dataclasses
import pathlib
from typing import Any

import pyarrow as pa
import pytest

from storage.errors import UnsupportedFeatureError
from storage.format.metadata.file_meta import EMPTY_ROW, CommitMessage
from storage.format.row.bucket import assign_buckets
from storage.format.types.types import parse_type
from storage.table.bucket_mode import BucketMode, bucket_mode
from storage.table.scan.predicate import parse_predicate
from storage.table.table import FileStoreTable
from storage.table.write.rows_by_bucket import bucket_groups
from tests.table_kit import make_table, prepared, rows_batch, rows_of, write


@pytest.mark.parametrize(
    ("keys", "partitions", "bucket", "mode"),
    [
        (("k",), (), "3", BucketMode.FIXED),
        (("p", "k"), ("p",), "-1", BucketMode.DYNAMIC),
        (("k",), (), "-1", BucketMode.DYNAMIC),
        (("k",), ("p",), "-1", BucketMode.CROSS_PARTITION),
        (("k",), ("p",), "-2", BucketMode.POSTPONE),
        ((), ("p",), "-1", BucketMode.UNAWARE),
    ],
)
def test_modes(
    tmp_path: pathlib.Path,
    keys: tuple[str, ...],
    partitions: tuple[str, ...],
    bucket: str,
    mode: BucketMode,
) -> None:
    columns = (("p", "INT"), ("k", "INT"))
    table = make_table(
        tmp_path, columns=columns, keys=keys, partitions=partitions, options={"bucket": bucket}
    )
    assert bucket_mode(table.schema, table.options) is mode


@pytest.mark.parametrize("function", ["default", "mod", "hive"])
@pytest.mark.parametrize("keyed", [True, False])
def test_every_bucket_function_writes_and_prunes(
    tmp_path: pathlib.Path, function: str, keyed: bool
) -> None:
    options = {"bucket": "5", "bucket-function.type": function}
    table = make_table(
        tmp_path, keys=("k",) if keyed else (), options=options | {"bucket-key": "k"}
    )
    write(table, 1, [("+I", k, str(k)) for k in range(-20, 20)])
    wanted = assign_buckets(
        [pa.array(range(-20, 20), pa.int64())], [parse_type("BIGINT")], 5, function
    )
    for split in table.new_scan().plan().splits:
        for batch in table.new_read().to_batches(split):
            for k in batch.column("k").to_pylist():
                assert wanted[k + 20] == split.bucket
    for k in (-20, -3, 0, 19):
        scan = table.new_scan().with_filter(parse_predicate(f"k = {k}"))
        assert [split.bucket for split in scan.plan().splits] == [wanted[k + 20]]
        assert rows_of(table, filter=parse_predicate(f"k = {k}")) == [(k, str(k))]


def test_a_bucket_function_that_cannot_take_the_key_is_refused(tmp_path: pathlib.Path) -> None:
    options = {"bucket": "5", "bucket-key": "v", "bucket-function.type": "mod"}
    table = make_table(tmp_path, keys=(), options=options)
    with pytest.raises(UnsupportedFeatureError, match="exactly one INT or BIGINT"):
        prepared(table, [("+I", 1, "x")])


def test_postponed_rows_are_not_visible(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path, options={"bucket": "2", "write-only": "true"})
    write(table, 1, [("+I", k, "x") for k in range(10)])
    messages = prepared(table, [("+I", k, "y") for k in range(10)])
    root = pathlib.Path(table.layout.root)
    for message in messages:  # as a writer of postponed buckets would have made them
        for file in message.data.new_files:
            target = root / "bucket-postpone" / file.file_name
            target.parent.mkdir(exist_ok=True)
            (root / f"bucket-{message.bucket}" / file.file_name).rename(target)
    table.new_commit("other").commit([_postponed(message) for message in messages], 1)
    assert {row[1] for row in rows_of(table)} == {"x"}
    assert all(split.bucket >= 0 for split in table.new_scan().plan().splits)


def _postponed(message: CommitMessage) -> CommitMessage:
    return dataclasses.replace(message, bucket=-2, total_buckets=-2)


def test_rows_are_cut_only_where_the_bucket_follows_from_the_row(tmp_path: pathlib.Path) -> None:
    table: FileStoreTable = make_table(tmp_path, options={"bucket": "-1"})
    rows: pa.RecordBatch = rows_batch(table, [("+I", 1, "x")])
    with pytest.raises(UnsupportedFeatureError, match="from the row alone"):
        list(bucket_groups(rows, table))


def test_an_append_table_is_cut_by_partition_only(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path, keys=(), options={"bucket": "-1"})
    found: list[Any] = list(bucket_groups(rows_batch(table, [("+I", 1, "x")] * 3), table))
    assert found == [(EMPTY_ROW, 0, None)]
