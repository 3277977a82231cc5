# SPDX-License-Identifier: Apache-2.0
"""Timestamps between us and JVMs that do not run in UTC, in every format.

What a JVM wrote we must read as it does itself: also where it lost a wall clock that its zone
skips. What we wrote it must read unchanged, TIMESTAMP_LTZ in ORC under
`orc.timestamp-ltz.legacy.type` = false only: Java's legacy rule shifts files of other zones.
"""

import datetime
import random
from collections.abc import Iterator
from typing import Any

import pytest

from storage.format.metadata.schema import TableSchema, new_schema
from storage.format.types.types import parse_type
from storage.table.scan.predicate import Compare, Op
from storage.table.table import FileStoreTable
from tests.interop import artifacts
from tests.interop.java_peer import JavaPeer, Rows
from tests.interop.peers import required_jars
from tests.table_kit import rows_batch

pytestmark = pytest.mark.interop

LEGACY = "orc.timestamp-ltz.legacy.type"
TYPES: dict[str, Any] = {
    "k": "INT NOT NULL",
    "t": "TIMESTAMP(6)",
    "z": "TIMESTAMP(6) WITH LOCAL TIME ZONE",
    "m": "TIMESTAMP(3)",
    "d": "DATE",
    "a": {"type": "ARRAY", "element": "TIMESTAMP(6)"},
    "n": "TIMESTAMP(9)",  # INT96 in Parquet; Avro has none so precise
}
SKIPPED: dict[str, set[str]] = {
    "Asia/Shanghai": {"1900-01-01 08:00"},
    "America/New_York": {"2024-03-10 02:00", "2024-03-10 02:30"},
    "GMT-03:30": set(),
}
"""By zone the wall clocks of the rows that it skips; so a JVM there cannot show them."""
HALF_HOUR = datetime.timedelta(minutes=30)
"""Both New York's change of clocks and the begin of 1970 are walked through in such steps."""


def moments() -> list[datetime.datetime]:
    """Wall clocks, or the same in UTC: of three centuries, and around what is special."""
    made = random.Random(1970)
    start = datetime.datetime.fromisoformat("1690-01-01")
    found = [
        start
        + datetime.timedelta(days=made.randrange(200_000), microseconds=made.randrange(10**11))
        for _ in range(200)
    ]
    for special in ("1900-01-01", "1901-01-01", "1970-01-01", "2024-03-10", "2024-11-03"):
        middle = datetime.datetime.fromisoformat(special)
        found += [
            middle + step * HALF_HOUR + datetime.timedelta(microseconds=made.choice((0, 7, 123456)))
            for step in range(-40, 41)
        ]
    return found


ROWS: Rows = [
    (
        "+I",
        (
            k,
            moment,
            moment.replace(tzinfo=datetime.UTC),
            moment.replace(microsecond=moment.microsecond // 1000 * 1000),
            moment.date(),
            [moment, None],
            moment,
        ),
    )
    for k, moment in enumerate(moments())
]


def schema(options: dict[str, str]) -> TableSchema:
    return new_schema(
        [
            (name, parse_type(text))
            for name, text in TYPES.items()
            if name != "n" or options["file.format"] != "avro"
        ],
        options={"bucket": "-1", "write-only": "true", **options},
        now_ms=0,
    )


@pytest.fixture(
    scope="module",
    params=[
        "America/New_York",
        *(pytest.param(zone, marks=pytest.mark.full) for zone in ("Asia/Shanghai", "GMT-03:30")),
    ],
)
def abroad(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[JavaPeer]:
    """A JVM in another zone."""
    required_jars(artifacts.CORE)
    with JavaPeer.running(tmp_path_factory.mktemp("abroad"), request.param) as peer:
        yield peer


@pytest.mark.parametrize(
    "options",
    [
        {"file.format": "orc"},
        {"file.format": "orc", LEGACY: "false"},
        {"file.format": "avro"},
        {"file.format": "parquet"},
    ],
    ids=["orc", "orc-new", "avro", "parquet"],
)
def test_we_read_what_a_jvm_abroad_wrote(abroad: JavaPeer, options: dict[str, str]) -> None:
    name = f"from_java_{'_'.join(options.values())}"
    abroad.create(f"db.{name}", schema(options))
    abroad.write(f"db.{name}", ROWS)
    table = FileStoreTable.open(str(abroad.warehouse / "db.db" / name))
    expected = abroad.read(f"db.{name}").sort_by("k")
    assert table.to_arrow().sort_by("k").to_pylist() == expected.to_pylist()
    for column in ("t", "z"):
        for row in range(0, len(ROWS), 40):
            value = expected[column][row].as_py()
            found = table.to_arrow(filter=Compare(Op.EQ, column, value))
            assert row in found["k"].to_pylist(), (column, value)


@pytest.mark.parametrize(
    "options", [{"file.format": "orc", LEGACY: "false"}, {"file.format": "parquet"}], ids=str
)
def test_a_jvm_abroad_reads_what_we_wrote(abroad: JavaPeer, options: dict[str, str]) -> None:
    name = f"from_us_{options['file.format']}"
    abroad.create(f"db.{name}", schema(options))
    table = FileStoreTable.open(str(abroad.warehouse / "db.db" / name))
    ours = rows_batch(table, [(kind, *values) for kind, values in ROWS])
    with table.new_write("us") as write:
        write.write(ours)
        table.new_commit("us").commit(write.prepare_commit(), 1)
    found = abroad.read(f"db.{name}").sort_by("k")
    skipped = SKIPPED[str(abroad.zone)] if options["file.format"] == "orc" else set()
    for column in TYPES:
        pairs = zip(ours[column].to_pylist(), found[column].to_pylist(), strict=True)
        changed = [wall for wall, theirs in pairs if wall != theirs]
        first = [wall[0] if isinstance(wall, list) else wall for wall in changed]
        assert {wall.isoformat(" ", "minutes") for wall in first} == (
            skipped if column in ("t", "m", "a", "n") else set()
        ), column
