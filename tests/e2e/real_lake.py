# SPDX-License-Identifier: Apache-2.0
"""Two tables of a real database, and how far the lake is from them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from storage.catalog.catalog import FileSystemCatalog
from tests.e2e.daemon_process import DaemonProcess, eventually, run_once
from tests.e2e.oracle import differences
from tests.e2e.real_tables import Column, RealTable
from tests.e2e.test_real_databases import Source, open_lake, wait_for_fence

GOODS = RealTable(
    "goods",
    (
        Column("title", "varchar(30)", ("'a'", "'b c'", "'ü€'")),
        Column("qty", "int", ("0", "-7", "2147483647")),
        Column("price", "decimal(10,2)", ("1.25", "-99999999.99")),
    ),
)
PARTS = RealTable(
    "parts",
    (Column("note", "text", ("'x'", "'y'")), Column("big", "bigint", ("1", "-9007199254740993"))),
    key=(("region", "varchar(8)"), ("id", "int")),
)


def amended(path: Path, **sections: Any) -> Path:
    """The configuration with more in some sections; of lists and texts, what is given."""
    raw = yaml.safe_load(path.read_text())
    for name, more in sections.items():
        raw[name] = {**raw.get(name, {}), **more} if isinstance(more, dict) else more
    path.write_text(yaml.safe_dump(raw))
    return path


def lines_apart(connection: Any, tables: Sequence[RealTable], config: Path) -> list[str]:
    """How the lake differs from the database now; a table that is not there yet differs."""
    lake = open_lake(config.parent / "warehouse")
    found: list[str] = []
    for table in tables:
        known = lake.get(table.name)
        found += (
            [f"{table.name}: no table"] if known is None else differences(connection, table, known)
        )
    return found


def wait_until_equal(
    connection: Any, tables: Sequence[RealTable], config: Path, daemon: DaemonProcess, what: str
) -> None:
    """Wait until the lake holds what the database holds, which is at rest."""

    def equal() -> bool:
        assert daemon.alive, daemon.log_tail()
        return not lines_apart(connection, tables, config)

    try:
        eventually(equal, timeout=240, interval=1.0, what=what)
    except AssertionError:
        raise AssertionError(
            "\n".join([what, *lines_apart(connection, tables, config)[:20], daemon.log_tail(20)])
        ) from None


def fenced(cursor: Any, config: Path, daemon: DaemonProcess, number: int) -> None:
    """Wait until the daemon has come behind everything that was written."""
    cursor.execute(f"UPDATE fence SET round = {number} WHERE id = 1")
    wait_for_fence(config.parent, daemon, number)


def finished(source: Source, config: Path, daemon: DaemonProcess) -> dict[str, Any]:
    """The lake after everything that the connector told."""
    assert daemon.alive, daemon.log_tail()
    daemon.kill_all()
    source.wait_until_quiet()
    run_once(config, timeout=600)
    return lake_without_bad(config.parent / "warehouse")


def lake_without_bad(warehouse: Path) -> dict[str, Any]:
    """The lake's tables; no record is in quarantine."""
    held = FileSystemCatalog(str(warehouse)).table("lakeward._quarantine").to_arrow()
    assert held.select(["topic", "offset", "error"]).to_pylist() == []
    return open_lake(warehouse)
