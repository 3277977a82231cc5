# SPDX-License-Identifier: Apache-2.0
"""Tables that we write, read by pypaimon and pypaimon-rust in their own virtualenv.

`.venv-peers` of the repository, or the interpreter named by LAKEWARD_PEERS_PYTHON, must hold the
versions of `requirements-peers.txt`. Without it the tests are skipped; under CI=true they fail.
"""

import dataclasses
import datetime
import decimal
import pathlib
from typing import Any

import pyarrow as pa
import pytest

from storage.format.metadata.schema_changes import AddColumn, UpdateType
from storage.format.types.types import parse_type
from storage.table.table import FileStoreTable
from tests.interop.peers import PEERS, peer_rows
from tests.table_kit import NAME, make_table, write

pytestmark = pytest.mark.interop

DAY = datetime.date(2024, 5, 14)
MILLI = datetime.datetime(2024, 5, 14, 12, 34, 56, 789000)  # noqa: DTZ001 - TIMESTAMP has no zone
MICRO = datetime.datetime(1969, 12, 31, 23, 59, 59, 999999)  # noqa: DTZ001
UTC = datetime.datetime(2024, 5, 14, 12, 0, tzinfo=datetime.UTC)


@dataclasses.dataclass(frozen=True)
class Case:
    """A table: its columns and the values of key number n."""

    name: str
    columns: tuple[tuple[str, str], ...]
    keys: tuple[str, ...]
    key_of: Any
    partitions: tuple[str, ...] = ()
    options: tuple[tuple[str, str], ...] = ()


def _day(number: int) -> datetime.date:
    return DAY + datetime.timedelta(days=number)


CASES = (
    Case("bigint", (("k", "BIGINT"),), ("k",), lambda n: (n * 10**15 - 3,)),
    Case("tinyint", (("k", "TINYINT"),), ("k",), lambda n: (n - 5,)),
    Case("string", (("k", "STRING"),), ("k",), lambda n: ("é" * (n % 9) + str(n),)),
    Case("varbinary", (("k", "VARBINARY(20)"),), ("k",), lambda n: (bytes([255 - n]) * (n % 9),)),
    Case("date", (("k", "DATE"),), ("k",), lambda n: (_day(n * 400 - 9000),)),
    Case(
        "decimal",
        (("k", "DECIMAL(10, 2)"),),
        ("k",),
        lambda n: (decimal.Decimal(n - 7) / 100,),
    ),
    Case(
        "wide_decimal",
        (("k", "DECIMAL(30, 5)"),),
        ("k",),
        lambda n: (decimal.Decimal(n - 7) * 10**15,),
    ),
    Case(
        "timestamp3",
        (("k", "TIMESTAMP(3)"),),
        ("k",),
        lambda n: (MILLI + datetime.timedelta(milliseconds=n),),
    ),
    Case(
        "timestamp6",
        (("k", "TIMESTAMP(6)"),),
        ("k",),
        lambda n: (MICRO + datetime.timedelta(microseconds=n * 7),),
    ),
    Case(
        "composite",
        (("a", "INT"), ("b", "STRING"), ("c", "BOOLEAN")),
        ("b", "a", "c"),
        lambda n: (n // 4, f"{n % 4}", n % 2 == 0),
        options=(("bucket", "3"),),
    ),
    Case(
        "partitioned",
        (("p", "STRING"), ("k", "INT")),
        ("p", "k"),
        lambda n: (("", "a b", "x/y=z")[n % 3], n),
        partitions=("p",),
        options=(("bucket", "2"),),
    ),
    Case(
        "two_partitions",
        (("d", "DATE"), ("n", "INT"), ("k", "BIGINT")),
        ("d", "n", "k"),
        lambda n: (_day(n % 2), n % 3, n),
        partitions=("d", "n"),
    ),
)

VALUE_COLUMNS = (
    ("v_text", "STRING"),
    ("v_int", "INT"),
    ("v_decimal", "DECIMAL(12, 3)"),
    ("v_double", "DOUBLE"),
    ("v_ltz", "TIMESTAMP(3) WITH LOCAL TIME ZONE"),
    ("v_bytes", "BYTES"),
)


def values(number: int, version: int) -> tuple[Any, ...]:
    """Non-key values; some are null."""
    if (number + version) % 7 == 3:
        return (None,) * len(VALUE_COLUMNS)
    return (
        f"{number}-{version}",
        number * version,
        decimal.Decimal(number) / 8,
        number / 3,
        UTC + datetime.timedelta(seconds=number),
        bytes([number, version]),
    )


def filled(tmp_path: pathlib.Path, case: Case, compaction: str) -> FileStoreTable:
    """The case's table after inserts, updates and deletes."""
    table = make_table(
        tmp_path,
        columns=[*case.columns, *VALUE_COLUMNS],
        keys=case.keys,
        partitions=case.partitions,
        options=dict(case.options),
    )

    def commit(identifier: int, changes: list[tuple[str, int]], *, full: bool = False) -> None:
        rows = [(kind, *case.key_of(n), *values(n, identifier)) for kind, n in changes]
        write(table, identifier, rows, compaction=compaction != "none", full=full)

    commit(1, [("+I", n) for n in range(20)])
    commit(2, [("+U", n) for n in range(0, 20, 2)] + [("-D", n) for n in range(1, 20, 4)])
    commit(3, [("+I", 1), ("-D", 2), ("-D", 2)], full=compaction == "full")
    for identifier in range(4, 9):
        commit(identifier, [("+U", identifier), ("-D", identifier + 4)])
    return table


def comparable(table: pa.Table) -> list[tuple[str, ...]]:
    """Rows as text, sorted."""
    names = sorted(table.column_names)
    return sorted(tuple(repr(row[name]) for name in names) for row in table.to_pylist())


@pytest.mark.parametrize("peer", PEERS)
@pytest.mark.parametrize(
    "compaction",
    [
        pytest.param("none", marks=pytest.mark.full),
        "due",
        pytest.param("full", marks=pytest.mark.full),
    ],
)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_peer_reads_the_same_rows(
    tmp_path: pathlib.Path, case: Case, compaction: str, peer: str
) -> None:
    table = filled(tmp_path, case, compaction)
    assert comparable(peer_rows(peer, tmp_path, NAME)) == comparable(table.to_arrow())


@pytest.mark.parametrize("peer", PEERS)
def test_a_peer_reads_through_schema_changes(tmp_path: pathlib.Path, peer: str) -> None:
    table = make_table(tmp_path, columns=[("k", "INT"), ("v", "INT")])
    write(table, 1, [("+I", 1, 10), ("+I", 2, 20)], compaction=False)
    table = table.alter([AddColumn("w", parse_type("STRING"), first=True)])
    table = table.alter([UpdateType("v", parse_type("BIGINT"))])
    write(table, 2, [("+I", "new", 2, 2**40)], compaction=False)
    assert comparable(peer_rows(peer, tmp_path, NAME)) == comparable(table.to_arrow())


@pytest.mark.parametrize("peer", PEERS)
def test_a_peer_reads_merged_manifests_and_an_overwrite(tmp_path: pathlib.Path, peer: str) -> None:
    table = make_table(tmp_path, options={"manifest.merge-min-count": "2"})
    for number in range(8):
        write(table, number, [("+I", number % 5, str(number))])
    assert comparable(peer_rows(peer, tmp_path, NAME)) == comparable(table.to_arrow())
    table.new_commit("u").truncate(99)
    write(table, 100, [("+I", 7, "after")])
    assert comparable(peer_rows(peer, tmp_path, NAME)) == [("7", "'after'")]
