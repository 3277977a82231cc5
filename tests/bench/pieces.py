# SPDX-License-Identifier: Apache-2.0
"""Single pieces against the plain library call that does the same: buckets, sorting, files, scans.

The last figures are the decoders' (`decode_events`, `decode_avro`).
"""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from storage.catalog.catalog import FileSystemCatalog
from storage.format.files.data_file import key_value_schema
from storage.format.metadata.file_meta import FileSource
from storage.format.row.bucket import assign_buckets, hash_rows, key_hashes
from storage.format.types.types import SEQUENCE_NUMBER, VALUE_KIND, parse_type
from storage.lsm.merge import merge_rows
from storage.lsm.merge_functions.segments import Deduplicate
from storage.table.commit.live_files import live_entries
from storage.table.write.cross_partition import KeyIndex
from storage.table.write.dynamic_bucket import PartitionIndex
from tests.bench import decode_avro, decode_events, workload
from tests.bench.measure import Figure, interleaved, rate
from tests.bench.merge import bucket_context

ROWS = 1_000_000
_DUPLICATES = 0.1
_AVRO_GOAL = 40_000


def run(*, quick: bool, scratch: Path) -> list[Figure]:
    """All figures of this part."""
    rows, rounds = (ROWS // 10, 3) if quick else (ROWS, 7)
    return [
        *_buckets(rows, rounds, scratch),
        *_sorting(rows, rounds),
        *_writing(rows, rounds, scratch),
        *_scanning(rows, rounds, scratch),
        *_decoding(rows // 10, rounds),
    ]


def _buckets(rows: int, rounds: int, scratch: Path) -> list[Figure]:
    rng = np.random.default_rng(5)
    numbers = pa.array(rng.integers(0, 1 << 40, rows))
    texts = pa.array([f"customer-{number:012d}" for number in numbers.to_pylist()])
    bigint, string = parse_type("BIGINT NOT NULL"), parse_type("STRING NOT NULL")
    hashes = hash_rows([numbers], [bigint])
    dynamic = PartitionIndex(target_rows=rows // 4)
    dynamic.assign(hashes)
    keys = key_hashes([numbers], [bigint], (1, 2))
    places = KeyIndex(scratch / "keys", memory_entries=rows // 10)
    places.put(keys[: rows // 2], np.arange(rows // 2))
    places.put(keys[rows // 2 :], np.arange(rows - rows // 2))
    samples = interleaved(
        rounds,
        {
            "bigint": lambda: assign_buckets([numbers], [bigint], 16),
            "string": lambda: assign_buckets([texts], [string], 16),
            "dynamic": lambda: dynamic.assign(hashes),
            "places": lambda: places.find(keys),
        },
    )
    places.close()
    return [
        rate("bucket of a BIGINT key", samples, "bigint", rows, goal=20e6),
        rate("bucket of a 21-byte STRING key", samples, "string", rows, goal=3e6),
        rate("dynamic bucket of a known key hash", samples, "dynamic", rows),
        rate("place of a key in the cross-partition index", samples, "places", rows),
    ]


def _unsorted(rows: int) -> pa.RecordBatch:
    """Key-value rows in arrival order, a tenth of them second changes of a key."""
    rng = np.random.default_rng(6)
    ids = rng.permutation(np.arange(rows) % int(rows * (1 - _DUPLICATES))) + 1
    return _key_values(workload.draw_rows(rng, ids, 1))


def _key_values(table: pa.Table) -> pa.RecordBatch:
    rows = table.num_rows
    system = [pa.array(np.arange(rows)), pa.array(np.zeros(rows, np.int8))]
    columns = [column.combine_chunks() for column in table.columns]
    schema = key_value_schema(workload.table_schema({"bucket": "1"}))
    return pa.RecordBatch.from_arrays([*system, *columns], schema=schema)


def _sorting(rows: int, rounds: int) -> list[Figure]:
    batch = _unsorted(rows)

    def plain() -> pa.RecordBatch:
        ids = batch["id"].to_numpy()
        order = np.lexsort((batch[SEQUENCE_NUMBER].to_numpy(), ids))
        ordered = ids[order]
        return batch.take(pa.array(order[np.append(ordered[1:] != ordered[:-1], True)]))

    ways = {"ours": lambda: merge_rows([batch], ["id"], Deduplicate()), "numpy": plain}
    if not ways["ours"]().equals(plain()):
        raise RuntimeError("sort and dedup: wrong result")
    samples = interleaved(rounds, ways)
    note = "peer: numpy lexsort, one take"
    return [rate("sort + dedup of a buffer", samples, "ours", rows, versus="numpy", note=note)]


def _writing(rows: int, rounds: int, scratch: Path) -> list[Figure]:
    rng = np.random.default_rng(7)
    batch = _key_values(workload.draw_rows(rng, np.arange(rows) + 1, 1))
    context = bucket_context(scratch / "write")
    Path(context.directory).mkdir(parents=True)
    columns = {"_KEY_id": batch["id"], **{name: batch[name] for name in batch.schema.names}}
    table = pa.table(columns)
    dictionaries = ["status", VALUE_KIND]

    def ours() -> None:
        writer = context.open_writer(0, FileSource.APPEND)
        writer.write(batch)
        context.delete_files(writer.close())

    def plain(*, use_dictionary: bool | list[str]) -> None:
        path = scratch / "write" / "plain.parquet"
        pq.write_table(
            table, path, compression="zstd", compression_level=1, use_dictionary=use_dictionary
        )
        path.unlink()

    samples = interleaved(
        rounds,
        {
            "ours": ours,
            "pyarrow": lambda: plain(use_dictionary=True),
            "tuned pyarrow": lambda: plain(use_dictionary=dictionaries),
        },
    )
    note = "the same columns, zstd 1; ours adds statistics, keys, metadata"
    tuned = "dictionaries only where they pay, as ours chooses by itself"
    return [
        rate("key-value file write", samples, "ours", rows, versus="pyarrow", goal=0.7, note=note),
        rate(
            "key-value file write, tuned peer",
            samples,
            "ours",
            rows,
            versus="tuned pyarrow",
            goal=0.7,
            note=tuned,
        ),
    ]


def _scanning(rows: int, rounds: int, scratch: Path) -> list[Figure]:
    """A table compacted into one run per bucket, against reading its files as they are."""
    catalog = FileSystemCatalog(str(scratch / "scan"))
    catalog.create_database("db")
    catalog.create_table("db.t", workload.table_schema({"bucket": "2"}))
    table = catalog.table("db.t")
    orders = workload.Orders(workload.Size(inserts=rows, batches=1, changes=rows // 10))
    with table.new_write("bench") as write:
        commit = table.new_commit("bench")
        for number, batch in enumerate(orders.batches()):
            write.write(batch.combine_chunks().to_batches()[0])
            commit.commit(write.prepare_commit(), number)
        write.compact(full=True)
        commit.commit(write.prepare_commit(), 99)
    expected = orders.final()
    workload.require_equal(table.to_arrow(), expected, "scan")
    snapshot = table.latest_snapshot()
    if snapshot is None:
        raise RuntimeError("nothing was committed")
    live = live_entries(table, snapshot)
    folder = scratch / "scan" / "db.db" / "t"
    files = [folder / f"bucket-{entry.bucket}" / entry.file.file_name for entry in live]
    names = workload.ARROW_SCHEMA.names

    def plain(columns: list[str]) -> pa.Table:
        return pa.concat_tables([pq.read_table(path, columns=columns) for path in files])

    figures = []
    for what, columns in (("all columns", names), ("one column", ["amount"])):
        samples = interleaved(
            rounds,
            {
                "ours": lambda columns=columns: table.to_arrow(columns=columns),
                "pyarrow": lambda columns=columns: plain(columns),
            },
        )
        figures.append(
            rate(
                f"scan of a compacted table, {what}",
                samples,
                "ours",
                expected.num_rows,
                versus="pyarrow",
                goal=0.8,
                note="peer: pyarrow.parquet on the live files, threads as by default",
            )
        )
    return figures


def _decoding(events: int, rounds: int) -> list[Figure]:
    """Debezium events to typed change batches, one core, per CPU second."""
    bare = decode_events.payloads(events)
    prefix = b'{"schema":' + decode_events.block() + b',"payload":'
    shapes = {
        "bare": bare,
        "schema block": [prefix + value + b"}" for value in bare],
    }
    found: dict[str, tuple[int, str]] = {}
    for shape, values in shapes.items():
        each = decode_events.measure(values, rounds)
        for way in ("walked", "typed"):
            least, median = each[way]
            note = f"{each['mean_bytes']} bytes an event, best {round(1e6 / least):,}"
            found[f"{shape}, {way}"] = round(1e6 / median), note
    avro = decode_avro.measure(events, rounds)
    note = f"{avro['mean_bytes']} bytes an event, best {avro['best']:,}"
    found["Avro"] = avro["events_per_cpu_s"], note
    return [
        Figure(
            name=f"decode, {shape}",
            value=value,
            unit="events/s",
            goal=_AVRO_GOAL if shape == "Avro" else None,
            note=note,
        )
        for shape, (value, note) in found.items()
    ]
