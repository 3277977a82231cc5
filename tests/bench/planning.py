# SPDX-License-Identifier: Apache-2.0
"""Opening a table of ten thousand data files and planning reads of it, nothing held in memory.

The files exist as manifest entries only, because a plan opens none. Entries come from files that
were really written: ten columns with statistics. Then a plan of many manifests in a store where
every request takes 20 ms, as object stores do.
"""

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace

from storage.catalog.catalog import FileSystemCatalog
from storage.format.metadata.file_meta import ManifestEntry
from storage.format.metadata.manifest import ManifestFileMeta
from storage.format.metadata.manifest_store import ManifestStore, clear_manifest_cache
from storage.io.file_io import FileIO
from storage.io.local import LocalFileIO
from storage.io.object_store import ObjectStoreFileIO
from storage.table.commit.live_files import clear_live_cache, live_entries
from storage.table.scan.scan import TableScan
from storage.table.table import FileStoreTable
from tests.bench import workload
from tests.bench.measure import Figure, interleaved

FILES = 10_000
_BUCKETS = 100
_MANIFEST_BYTES = 4 * 1024
_MANIFESTS = 200
_REQUEST_S = 0.02
_BUCKET = 7


def run(*, quick: bool, scratch: Path) -> list[Figure]:
    """All figures of this part."""
    rounds, manifests = (3, _MANIFESTS // 4) if quick else (7, _MANIFESTS)
    return [*_cold_plans(rounds, scratch), _distant_plan(min(rounds, 5), manifests)]


def _cold_plans(rounds: int, scratch: Path) -> list[Figure]:
    """Seconds of a cold plan: of all buckets, and of one, from one manifest and from several."""
    figures = []
    for name, target, sort in (
        ("one manifest", 8 << 20, False),
        ("manifests by bucket", _MANIFEST_BYTES, True),
    ):
        catalog = FileSystemCatalog(str(scratch / name.replace(" ", "-")))
        table = _table(catalog, FILES, target, sort=sort)
        ways: dict[str, Callable[[TableScan], TableScan]] = {
            "one bucket": lambda scan: scan.with_bucket(_BUCKET),
            "all buckets": lambda scan: scan,
        }
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
    return [*figures, _manifests_read(table)]


class _Counting(LocalFileIO):
    """Remembers which manifests were read."""

    def __init__(self) -> None:
        super().__init__()
        self.manifests: list[str] = []

    def read_bytes(self, path: str) -> bytes:
        name = path.rpartition("/")[2]
        if name.startswith("manifest-") and not name.startswith("manifest-list-"):
            self.manifests.append(name)
        return super().read_bytes(path)


def _manifests_read(table: FileStoreTable) -> Figure:
    """Of the table with many manifests, those that a plan of one bucket reads."""
    snapshot = table.latest_snapshot()
    if snapshot is None:
        raise RuntimeError("nothing was committed")
    metas = list(itertools.chain.from_iterable(table.manifests.read_lists(snapshot.lists[:2])))
    store = _Counting()
    _cold(table, lambda scan: scan.with_bucket(_BUCKET), store)()
    return Figure(
        name=f"manifests read for one bucket, of {len(metas):,}",
        value=len(store.manifests),
        unit="files",
        goal=sum(meta.may_hold((_BUCKET,)) for meta in metas),
        lower=True,
        note="goal: those whose range of buckets holds it",
    )


class _Distant(ObjectStoreFileIO):
    """A store in memory whose every request takes a while."""

    def read_bytes(self, path: str) -> bytes:
        time.sleep(_REQUEST_S)
        return super().read_bytes(path)


class _OneByOne(_Distant):
    """The same, asked for one file after the other."""

    def read_many(self, paths: Sequence[str]) -> Iterator[bytes]:
        return map(self.read_bytes, paths)


def _distant_plan(rounds: int, manifests: int) -> Figure:
    store = _Distant.in_memory()
    files = manifests * _BUCKETS // 5
    table = _table(FileSystemCatalog("s3://memory/w", store), files, manifests, sort=False)
    alone = _OneByOne("s3://memory")
    alone._local_store = store._local_store
    samples = interleaved(
        rounds,
        {
            "ours": _cold(table, lambda scan: scan, store),
            "one by one": _cold(table, lambda scan: scan, alone),
        },
    )
    seconds = [sample.wall_s for sample in samples["ours"]]
    slow = [sample.wall_s for sample in samples["one by one"]]
    if any(each.result != files for way in samples.values() for each in way):
        raise RuntimeError("a plan in a distant store has not all files")
    ratios = [b / a for a, b in zip(seconds, slow, strict=True)]
    return Figure(
        name=f"plan {manifests} manifests, 20 ms a request",
        value=sorted(seconds)[len(seconds) // 2],
        unit="s",
        samples=seconds,
        versus="one by one",
        ratio=sorted(ratios)[len(ratios) // 2],
        ratios=ratios,
        goal=4.0,
        lower=True,
        note=f"{files:,} files; opening included, nothing cached in the process",
    )


def _cold(
    table: FileStoreTable,
    choose: Callable[[TableScan], TableScan],
    store: FileIO | None = None,
) -> Callable[[], int]:
    def work() -> int:
        clear_manifest_cache()
        clear_live_cache()
        opened = FileStoreTable.open(table.layout.root, store)
        plan = choose(opened.new_scan()).plan()
        return sum(len(split.files) for split in plan.splits)

    return work


def _table(catalog: FileSystemCatalog, files: int, target: int, *, sort: bool) -> FileStoreTable:
    """A table of some files; a target of manifests below 1 kB is a number of manifests."""
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
    entries = _many(live_entries(table, snapshot), files)
    if sort:
        entries.sort(key=lambda entry: entry.bucket)
    store = table.manifests
    base, base_size = store.write_list(_manifests(store, entries, target))
    delta, delta_size = store.write_list([])
    table.snapshots.publish(
        replace(
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


def _manifests(
    store: ManifestStore, entries: list[ManifestEntry], target: int
) -> list[ManifestFileMeta]:
    if target >= 1024:
        return store.write_manifests(entries, target)
    size = len(entries) // target
    groups = (entries[start : start + size] for start in range(0, len(entries), size))
    return [meta for group in groups for meta in store.write_manifests(group, 8 << 20)]


def _many(entries: list[ManifestEntry], files: int) -> list[ManifestEntry]:
    """The same files under other names, the same number in every bucket."""
    if len(entries) != _BUCKETS:
        raise RuntimeError(f"{len(entries)} files in {_BUCKETS} buckets")
    return [
        replace(
            entry,
            file=replace(entry.file, file_name=f"data-{number:036d}-0.parquet"),
        )
        for number, entry in enumerate(itertools.islice(itertools.cycle(entries), files))
    ]
