# SPDX-License-Identifier: Apache-2.0
import itertools
import math
import pathlib
import tempfile
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.format.metadata.file_meta import DataFileMeta, SimpleStats
from storage.format.row.row_codec import encode_row
from storage.format.types.types import parse_type
from storage.table.scan.predicate import Compare, In, Op, mask
from storage.table.scan.scan import Pruning
from storage.table.table import FileStoreTable
from tests.table_kit import make_table, reopened, write

FLOATS = (-math.inf, -1.5, -0.0, 0.0, 2.0, math.inf, math.nan)


def files_of(table: FileStoreTable) -> list[DataFileMeta]:
    return [file for split in table.new_scan().plan().splits for file in split.files]


@pytest.mark.parametrize(
    ("low", "high", "value", "kept"),
    [
        ("ab   ", "ab   ", "ab", True),
        ("ab   ", "cd   ", "cd", True),
        ("ab   ", "ab   ", "aa", False),
        ("ab   ", "ab   ", "b", False),
        ("ab\x01  ", "ab   ", "ab", True),  # filled up, "ab" is above "ab\x01"
    ],
)
def test_bounds_of_a_char_may_be_filled_up_with_blanks(
    tmp_path: pathlib.Path, low: str, high: str, value: str, kept: bool
) -> None:
    columns = [("k", "INT"), ("c", "CHAR(5)")]
    table = make_table(tmp_path, columns=columns, options={"file.format": "orc"})
    write(table, 1, [("+I", 1, "ab")])
    table = reopened(table)
    (file,) = files_of(table)
    types = [parse_type("INT"), parse_type("CHAR(5)")]
    padded = SimpleStats(encode_row([1, low], types), encode_row([1, high], types), (0, 0))
    file = msgspec.structs.replace(file, value_stats=padded, value_stats_cols=None)
    pruning = Pruning(table, Compare(Op.EQ, "c", value))
    assert pruning.keeps_by_values(file) is kept


def test_bounds_of_a_char_key_may_be_filled_up_with_blanks(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path, columns=[("c", "CHAR(5)"), ("v", "INT")], keys=("c",))
    write(table, 1, [("+I", "ab", 1)])
    table = reopened(table)
    (file,) = files_of(table)
    padded = encode_row(["ab   "], [parse_type("CHAR(5)")])
    stats = SimpleStats(padded, padded, (0,))
    file = msgspec.structs.replace(file, min_key=padded, max_key=padded, key_stats=stats)
    assert Pruning(table, Compare(Op.EQ, "c", "ab")).keeps_by_key(file)
    assert not Pruning(table, Compare(Op.EQ, "c", "aa")).keeps_by_key(file)


def test_a_key_behind_both_zeros_is_found(tmp_path: pathlib.Path) -> None:
    table = make_table(
        tmp_path, columns=[("f", "DOUBLE"), ("k", "INT"), ("v", "INT")], keys=("f", "k")
    )
    write(table, 1, [("+I", -0.0, 5, 1), ("+I", 0.0, 1, 2), ("+I", -0.0, 9, 3)])
    for key in (5, 1, 9):
        found = reopened(table).to_arrow(filter=Compare(Op.EQ, "k", key))
        assert key in found["k"].to_pylist()


@pytest.mark.parametrize(
    ("file_format", "kind"),
    [
        pytest.param(
            *each, marks=() if each[0] == "parquet" or each[1] == "value" else pytest.mark.full
        )
        for each in itertools.product(
            ["parquet", "orc", "avro"], ["value", "key", "bucket", "partition"]
        )
    ],
)
def test_pruning_by_floats_never_loses_a_row(
    tmp_path: pathlib.Path, file_format: str, kind: str
) -> None:
    @settings(max_examples=4, deadline=None)
    @given(st.lists(st.lists(st.sampled_from((*FLOATS, None)), min_size=1), min_size=1, max_size=3))
    def check(commits: Sequence[Sequence[float | None]]) -> None:
        with tempfile.TemporaryDirectory(dir=tmp_path) as folder:
            table = float_table(pathlib.Path(folder), file_format, kind)
            rows = itertools.count()
            for identifier, values in enumerate(commits, 1):
                usable = [v for v in values if v is not None or kind == "value"]
                if usable:
                    write(table, identifier, [("+I", next(rows), v) for v in usable])
            table = reopened(table)
            everything = table.to_arrow().sort_by("k").combine_chunks()
            batch = everything.to_batches()[0] if everything.num_rows else None
            for predicate in predicates():
                found = table.to_arrow(filter=predicate)
                wanted = everything.filter(mask(predicate, batch)) if batch else everything
                expected = wanted["k"].to_pylist()
                assert sorted(found["k"].to_pylist()) == expected, predicate

    check()


def float_table(folder: pathlib.Path, file_format: str, kind: str) -> FileStoreTable:
    options: dict[str, str] = {"file.format": file_format}
    keys: tuple[str, ...] = {"value": ("k",), "bucket": ("k", "f")}.get(kind, ("f", "k"))
    if kind == "bucket":
        options |= {"bucket": "4", "bucket-key": "f"}
    return make_table(
        folder,
        columns=[("k", "INT"), ("f", "DOUBLE")],
        keys=keys,
        partitions=("f",) if kind == "partition" else (),
        options=options,
    )


def predicates() -> list[Any]:
    compared = [Compare(op, "f", value) for op in Op for value in (-0.0, 0.0, 1.0, math.nan)]
    return [*compared, In("f", (0.0, 7.0)), In("f", (math.nan, 2.0)), In("f", (-0.0,))]
