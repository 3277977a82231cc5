# SPDX-License-Identifier: Apache-2.0
"""Opening a table of ten thousand data files and planning reads of it, nothing held in memory.

The files exist as manifest entries only, because a plan opens none. Entries come from files that
were really written: ten columns with statistics.
"""

import dataclasses
import itertools
from collections.abc import Callable
from pathlib import Path

from storage.format.file_meta import ManifestEntry
from storage.format.manifest_store import clear_manifest_cache
from storage.table.catalog import FileSystemCatalog
from storage.table.live_files import clear_live_cache, live_entries
from storage.table.scan import TableScan
from storage.table.table import FileStoreTable
from tests.bench import workload
from tests.bench.measure import Figure, interleaved

FILES = 10_000
_BUCKETS = 100
_MANIFEST_BYTES = 4 * 1024


def run(rounds: int, scratch: Path) -> list[Figure]:
    """Seconds of a cold plan: of all buckets, and of one, from one manifest and from several."""
    figures = []
    for name, target, sort in (
        ("one manifest", 8 << 20, False),
        ("manifests by bucket", _MANIFEST_BYTES, True),
    ):
        table = _table(scratch / name.replace(" ", "-"), target, sort=sort)
        ways = {"one bucket": lambda scan: scan.with_bucket(7), "all buckets": lambda scan: scan}
        samples = interleaved(rounds, {way: _cold(table, choose) for way, choose in ways.items()})
        for way in ways:
            found = {sample.result for sample in samples[way]}
            wanted = {FILES // _BUCKETS if way == "one bucket" else FILES}
            if found != wanted:
                raise RuntimeError(f"a plan of {way} has {found} files, not {wanted}")
            seconds = sorted(sample.wall_s for sample in samples[way])
            figures.append(
                Figure(
                    name=f"plan 10,000 files, {way}, {name}",
                    value=seconds[len(seconds) // 2],
                    unit="s",
                    samples=seconds,
                    goal=1.0 if way == "one bucket" else None,
                    lower=True,
                    note="opening included, nothing cached in the process",
                )
            )
    return figures


def _cold(table: FileStoreTable, choose: Callable[[TableScan], TableScan]) -> Callable[[], int]:
    def work() -> int:
        clear_manifest_cache()
        clear_live_cache()
        opened = FileStoreTable.open(table.layout.root)
        plan = choose(opened.new_scan()).plan()
        return sum(len(split.files) for split in plan.splits)

    return work


def _table(warehouse: Path, target: int, *, sort: bool) -> FileStoreTable:
    catalog = FileSystemCatalog(str(warehouse))
    catalog.create_database("db")
    catalog.create_table("db.t", workload.table_schema({"bucket": str(_BUCKETS)}))
    table = catalog.table("db.t")
    orders = workload.Orders(workload.Size(inserts=5_000, batches=1, changes=10))
    with table.new_write("bench") as write:
        write.write(next(iter(orders.batches())).combine_chunks().to_batches()[0])
        table.new_commit("bench").commit(write.prepare_commit(), 1)
    snapshot = table.latest_snapshot()
    if snapshot is None:
        raise RuntimeError("nothing was committed")
    entries = _many(live_entries(table, snapshot))
    if sort:
        entries.sort(key=lambda entry: entry.bucket)
    store = table.manifests
    base, base_size = store.write_list(store.write_manifests(entries, target))
    delta, delta_size = store.write_list([])
    table.snapshots.publish(
        dataclasses.replace(
            snapshot,
            id=snapshot.id + 1,
            base_manifest_list=base,
            base_manifest_list_size=base_size,
            delta_manifest_list=delta,
            delta_manifest_list_size=delta_size,
            uuid=table.ids.uuid(),
        )
    )
    return table


def _many(entries: list[ManifestEntry]) -> list[ManifestEntry]:
    """The same files under other names, the same number in every bucket."""
    if len(entries) != _BUCKETS:
        raise RuntimeError(f"{len(entries)} files in {_BUCKETS} buckets")
    return [
        dataclasses.replace(
            entry, file=dataclasses.replace(entry.file, file_name=f"data-{number:036d}-0.parquet")
        )
        for number, entry in enumerate(itertools.islice(itertools.cycle(entries), FILES))
    ]
