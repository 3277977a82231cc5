# SPDX-License-Identifier: Apache-2.0
"""Tables to damage: of every kind of file one that Apache Paimon wrote, and one of ours."""

import datetime
import decimal
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from storage.table.branches import create_branch
from storage.table.retention.consumers import write_consumer
from storage.table.scan.predicate import parse_predicate
from storage.table.table import FileStoreTable
from storage.table.tags import create_tag
from storage.table.write.rows.row_changes import delete_where
from tests.fuzz.campaign import Subject
from tests.table_kit import make_table, write

__all__ = ["golden_subjects", "own_subjects"]

_PACK = pathlib.Path(__file__).parents[1] / "golden" / "data" / "public"
_BY_INDEX = ("id = 77", "s = 's4'", "b between 0 and 5000", "id in (1, 15)")

_GOLDEN: Mapping[str, tuple[str, ...]] = {
    "types_parquet": (),
    "types_orc": (),
    "types_avro": (),
    "nested_parquet": (),
    "dv_v1": (),
    "dv_bitmap64": (),
    "append_dv": (),
    "dynamic_bucket": (),
    "file_index_separate": _BY_INDEX,
    "file_index_embedded": _BY_INDEX,
    "tags_branch_consumer": (),
    "statistics": (),
    "changelog_input": (),
}
"""Case -> texts of predicates."""


def golden_subjects() -> list[Subject]:
    """Tables that Apache Paimon wrote."""
    return [Subject(name, _PACK / name / "table", filters) for name, filters in _GOLDEN.items()]


_COLUMNS = (
    ("id", "BIGINT NOT NULL"),
    ("name", "STRING"),
    ("amount", "DECIMAL(12, 2)"),
    ("at", "TIMESTAMP(6)"),
    ("tags", {"type": "ARRAY", "element": "STRING"}),
)
_ROWS = 600
_START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC).replace(tzinfo=None)


def _rows(first: int, kind: str = "+I") -> list[Sequence[Any]]:
    return [
        (
            kind,
            number,
            f"customer number {number * 7919 % 1009}",
            None if number % 11 == 0 else decimal.Decimal(number * 3) + decimal.Decimal("0.25"),
            _START + datetime.timedelta(seconds=number * 37),
            [f"t{number % 5}", None],
        )
        for number in range(first, first + _ROWS)
    ]


def _keyed(folder: pathlib.Path, **options: str) -> FileStoreTable:
    table = make_table(folder, columns=_COLUMNS, keys=("id",), options=options)
    write(table, 1, _rows(0))
    write(table, 2, _rows(300))
    write(table, 3, _rows(100, "-D"), full=True)
    write(table, 4, _rows(5_000))
    return table


def _appended(folder: pathlib.Path, **options: str) -> FileStoreTable:
    table = make_table(
        folder,
        columns=_COLUMNS,
        keys=(),
        options={"bucket": "-1", "deletion-vectors.enabled": "true", **options},
    )
    write(table, 1, _rows(0), compaction=False)
    write(table, 2, _rows(1_000), compaction=False)
    delete_where(table, parse_predicate("id >= 10 and id < 60"), "fuzz")
    return table


def _with_metadata(folder: pathlib.Path) -> FileStoreTable:
    table = _keyed(folder)
    create_tag(table, "old", 2)
    create_branch(table, "side", tag="old")
    write_consumer(table, "reader", 3)
    return table


_INDEXED = {
    "file-index.bloom-filter.columns": "id",
    "file-index.bloom-filter.id.items": "2000",
    "file-index.bitmap.columns": "name",
    "file-index.bsi.columns": "id",
}
_OWN: Mapping[str, Callable[[pathlib.Path], FileStoreTable]] = {
    "ours_parquet": _with_metadata,
    "ours_orc": lambda folder: _keyed(folder, **{"file.format": "orc"}),
    "ours_avro": lambda folder: _keyed(folder, **{"file.format": "avro"}),
    "ours_dynamic": lambda folder: _keyed(folder, bucket="-1"),
    "ours_deletion": _appended,
    "ours_deletion64": lambda folder: _appended(folder, **{"deletion-vectors.bitmap64": "true"}),
    "ours_indexed": lambda folder: _appended(folder, **_INDEXED),
}
_FILTERS = ("id = 77", "id between 1200 and 1210", "name = 'customer number 5'", "amount is null")


def own_subjects(folder: pathlib.Path) -> list[Subject]:
    """Tables that we write into `folder`."""
    return [
        Subject(name, pathlib.Path(make(folder / name).layout.root), _FILTERS)
        for name, make in _OWN.items()
    ]
