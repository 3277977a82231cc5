# SPDX-License-Identifier: Apache-2.0
import pickle

import pyarrow as pa

from ingest.pipeline.chunk import (
    CHUNK_ARROW_SCHEMA,
    Chunk,
    ChunkKind,
    chunks_of,
    encode_chunk,
    encode_report,
    ipc_batch,
    ipc_bytes,
)
from ingest.pipeline.range_report import RangeReport, TableTotals


def test_rows_survive_a_chunk():
    rows = pa.record_batch({"id": [1, 2, 3], "name": ["a", None, "c"]})
    chunk = Chunk(
        kind=ChunkKind.CHANGES,
        table="shop.t",
        partition=b"\x00" * 12,
        bucket=3,
        schema_id=1,
        topic="shop.t",
        source_partition=2,
        first_offset=77,
        payload=ipc_bytes(rows),
    )
    batch = encode_chunk(chunk)
    assert batch.schema == CHUNK_ARROW_SCHEMA
    (back,) = chunks_of(batch)
    assert ipc_batch(back.payload) == rows
    assert (back.table, back.bucket, back.schema_id, back.order) == (
        "shop.t",
        3,
        1,
        ("shop.t", 2, 77),
    )


def test_chunks_of_one_partition_are_ordered_by_offset():
    late = Chunk(kind=ChunkKind.CHANGES, topic="t", source_partition=0, first_offset=100)
    early = Chunk(kind=ChunkKind.CHANGES, topic="t", source_partition=0, first_offset=9)
    assert sorted([late, early], key=lambda chunk: chunk.order) == [early, late]


def test_reports_add_up():
    one, two = RangeReport(), RangeReport()
    one.ranges.append(("t", 0, 5, 9))
    one.records["t"] = 4
    one.tables["a.x"] = TableTotals(4, {"t"}, 10, 20)
    two.ranges.append(("t", 0, 0, 5))
    two.records["t"] = 5
    two.tables["a.x"] = TableTotals(5, {"u"}, 5, 12)
    chunks = [next(chunks_of(encode_report(report))) for report in (one, two)]
    assert [chunk.kind for chunk in chunks] == [ChunkKind.REPORT] * 2
    sent = [pickle.loads(chunk.payload) for chunk in chunks]  # as the driver does
    totals = RangeReport.of(sent)
    assert totals.records == {"t": 9}
    assert totals.span == {"t": {"0": (0, 9)}}
    table = totals.tables["a.x"]
    assert (table.rows, table.topics, table.min_ts_ms, table.max_ts_ms) == (9, {"t", "u"}, 5, 20)
