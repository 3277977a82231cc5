# SPDX-License-Identifier: Apache-2.0
"""A real daemon that has something of everything to show: for its metrics, panels and pages."""

import contextlib
import json
import re
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from ingest.cli import main as cli
from ingest.tools.demo.shop import DemoShop
from tests.e2e.daemon_process import DaemonProcess, eventually, files_config, newest_snapshot
from tests.e2e.shop_stream import TABLES
from tests.soak.soak import Load

TOPIC = "shop.public.odds"
"""A topic of its own: bad records, and a column that comes later."""

_PROPERTIES = {"bucket": "2", "snapshot.num-retained.min": "5", "snapshot.num-retained.max": "12"}
_TABLES = [
    {"match": "shop.orders", "table.properties": {"changelog-producer": "lookup"}},
    {
        "match": "shop.customers",
        "table.properties": {"changelog-producer": "lookup", "lookup-wait": "false"},
    },
]


class WatchedPipeline:
    """The daemon, its load and its address.

    Args:
        directory: empty; everything goes below it.
        port: of its endpoint; 0 = any.
        sections: of the configuration, besides its own.
    """

    def __init__(self, directory: Path, *, port: int = 0, **sections: object) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.config = files_config(
            directory,
            trigger={"interval": "1s", "max.records": 3_000},
            table_properties=_PROPERTIES,
            tables=_TABLES,
            log={"format": "json"},
            **{"metrics": {"port": port}, **sections},
        )
        self.load = Load(directory / "events", seed=3, per_file=60)
        # changes of now: they are ten to a millisecond in there, so the stream falls behind slowly
        self.load.shop = DemoShop(3, schema_block=True, time_ms=int(time.time() * 1000))
        self._stopping = threading.Event()
        self._odds = threading.Thread(target=self._write_odds, name="odds", daemon=True)

    @property
    def address(self) -> str:
        """Base address of the daemon's pages."""
        log = self.daemon.log_path.read_text(errors="replace")
        found = re.search(r'"url": "(http://[^"]+)"', log)
        assert found, self.daemon.log_tail()
        return found.group(1)

    def page(self, path: str) -> str:
        with urllib.request.urlopen(self.address + path, timeout=10) as answer:
            return answer.read().decode()

    def _write_odds(self) -> None:
        folder = self.directory / "events" / TOPIC
        folder.mkdir(parents=True)
        number = 0
        while not self._stopping.is_set():
            number += 1
            after = {"id": number, "a": "x"} | ({"b": number} if number > 20 else {})
            after |= {"c": 1.5} if number > 60 else {}
            source = {"ts_ms": int(time.time() * 1000), "db": "shop", "table": "odds"}
            event = {"op": "c", "before": None, "after": after, "source": source}
            values = [json.dumps(event)] + (["not json at all"] if number % 10 == 0 else [])
            lines = [json.dumps({"key": {"id": number}, "value": value}) for value in values]
            hidden = folder / f".{number:07d}.jsonl"
            hidden.write_text("".join(f"{line}\n" for line in lines))
            hidden.rename(folder / f"{number:07d}.jsonl")
            self._stopping.wait(0.5)

    def pause(self, table: str) -> None:
        assert cli.main(["pause", "-c", str(self.config), table, "--timeout", "60"]) == 0


@contextlib.contextmanager
def watched_pipeline(directory: Path, **options: object) -> Iterator[WatchedPipeline]:
    """Begins with rows in all tables, goes on under load, and has parked one table."""
    pipeline = WatchedPipeline(directory, **options)
    pipeline.load.begin(300)
    warehouse = directory / "warehouse"
    with DaemonProcess(pipeline.config) as daemon:
        pipeline.daemon = daemon
        eventually(
            lambda: (
                not daemon.alive
                or all(newest_snapshot(warehouse, f"shop.{table}") for table in TABLES)
            ),
            timeout=180,
            what="the first commits",
        )
        assert daemon.alive, daemon.log_tail()
        pipeline.load.start()
        pipeline._odds.start()
        try:
            pipeline.pause("shop.products")
            yield pipeline
        finally:
            pipeline._stopping.set()
            pipeline.load.stop()
            pipeline._odds.join(10)
