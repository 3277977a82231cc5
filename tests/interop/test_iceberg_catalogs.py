# SPDX-License-Identifier: Apache-2.0
"""Tables published in real Iceberg catalogs, read back through them.

The REST catalog is Iceberg's reference implementation; the metastore is Hive's.
"""

import pathlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from storage.catalog.catalog import FileSystemCatalog
from storage.clock import ManualClock
from storage.format.metadata.schema_changes import (
    AddColumn,
    DropColumn,
    RenameColumn,
    SetOption,
    UpdateType,
)
from storage.format.types.types import parse_type
from storage.table.table import FileStoreTable
from tests.e2e.availability import had
from tests.e2e.hive_metastore import hive_metastore
from tests.e2e.iceberg_rest_server import iceberg_rest_server
from tests.interop.iceberg_readers import Place, read
from tests.interop.peers import PeerFailedError
from tests.table_kit import make_table, reopened, write

pytestmark = [pytest.mark.interop, pytest.mark.full]

VECTORS = {
    "metadata.iceberg.format-version": "3",
    "deletion-vectors.enabled": "true",
    "num-sorted-run.compaction-trigger": "3",
}
COLUMNS = (("p", "STRING"), ("k", "BIGINT"), ("n", "INT"), ("price", "DECIMAL(10, 2)"))


@pytest.fixture(scope="module")
def rest() -> Iterator[dict[str, str]]:
    with had(iceberg_rest_server(), "Iceberg REST catalog") as server:
        yield {
            "metadata.iceberg.storage": "rest-catalog",
            "metadata.iceberg.rest.uri": server.uri,
        }


@pytest.fixture(scope="module")
def hive() -> Iterator[dict[str, str]]:
    with had(hive_metastore(), "Hive metastore") as server:
        yield {"metadata.iceberg.storage": "hive-catalog", "metadata.iceberg.uri": server.uri}


def plain(table: pa.Table) -> list[str]:
    names = sorted(table.column_names)
    columns = [table.column(name).to_pylist() for name in names]
    return sorted(map(repr, zip(*columns, strict=True)))


def rows(first: int, width: int) -> list[tuple[object, ...]]:
    made = []
    for key in range(first, first + 5):
        values = (f"part {key % 2}", key, key * 3, None, key)[:width]
        made.append(("-D" if key == first + 4 else "+I", *values))
    return made


def live(table: FileStoreTable, seen: Callable[[dict[str, Any]], pa.Table]) -> None:
    """A history; after each step the catalog's readers see what ours see."""

    def check() -> None:
        found = reopened(table)
        assert plain(seen({})) == plain(found.to_arrow())

    for number in range(1, 5):
        write(table, number, rows(number, 4), full=number == 3)
        check()
    table.create_tag("kept")
    tagged = plain(table.to_arrow())
    middle = table.latest_snapshot().id
    table = table.alter([SetOption("snapshot.num-retained.max", "60")])
    table = table.alter([AddColumn("more", parse_type("BIGINT"))])
    write(table, 5, rows(9, 5), full=True)
    check()
    table = table.alter([UpdateType("n", parse_type("BIGINT")), RenameColumn("more", "less")])
    write(table, 6, rows(11, 5), full=True)
    check()
    table = table.alter([DropColumn("less")])
    write(table, 7, rows(12, 4), full=True)
    check()
    target = table.latest_snapshot().id
    write(table, 8, rows(20, 4), full=True)
    table.rollback_to(target)
    check()
    table = reopened(table)
    write(table, 9, rows(30, 4), full=True)
    check()
    assert plain(seen({"ref": "kept"})) == plain(seen({"snapshot": middle})) == tagged
    table.expire_snapshots(retain_min=1, retain_max=1, time_retained_ms=0)
    check()
    assert plain(seen({"ref": "kept"})) == tagged
    table.create_branch("line", snapshot_id=table.latest_snapshot().id)
    branch = table.at_branch("line")
    write(branch, 11, rows(40, 4), full=True)
    assert plain(seen({"ref": "line"})) == plain(branch.to_arrow())
    check()
    write(table, 10, rows(31, 4), full=True)
    check()


@pytest.mark.parametrize("options", [VECTORS, {"bucket": "-1"}], ids=["vectors", "append"])
@pytest.mark.parametrize("service", ["rest", "hive"])
def test_readers_of_the_catalog_see_our_rows(
    service: str,
    options: dict[str, str],
    request: pytest.FixtureRequest,
    tmp_path: pathlib.Path,
) -> None:
    where = request.getfixturevalue(service)
    keyed = "bucket" not in options
    name = f"of_{'vectors' if keyed else 'append'}"
    table = make_table(
        tmp_path,
        columns=COLUMNS,
        keys=("p", "k") if keyed else (),
        partitions=("p",),
        options={**options, **where, "metadata.iceberg.table": name},
        clock=ManualClock(time.time_ns() // 1_000_000),  # servers compare times with their own
    )
    url = where.get("metadata.iceberg.uri") or where["metadata.iceberg.rest.uri"]
    place = Place("", "", url, f"db.{name}")
    if not keyed:
        for number in range(1, 4):
            write(table, number, [("+I", f"part {number}", number, number, None)])
            assert plain(read("pyiceberg", service, place, {})) == plain(table.to_arrow())
        return
    live(table, lambda at: read("pyiceberg", service, place, at))
    catalog = FileSystemCatalog(str(tmp_path), clock=table.clock)
    catalog.rename_table("db.t", "db.other")
    table = catalog.table("db.other")
    assert plain(read("pyiceberg", service, place, {})) == plain(table.to_arrow())
    write(table, 20, rows(50, 4), full=True)
    assert plain(read("pyiceberg", service, place, {})) == plain(reopened(table).to_arrow())
    catalog.drop_table("db.other")
    with pytest.raises(PeerFailedError, match="NoSuchTable"):
        read("pyiceberg", service, place, {})
