# SPDX-License-Identifier: Apache-2.0
import os
import pathlib
import pickle

import numpy as np
import pyarrow as pa
import pytest

from ingest.pipeline.exchange import (
    CHUNK_ARROW_SCHEMA,
    Chunk,
    ChunkFile,
    ChunkKind,
    RangeReport,
    TableTotals,
    chunk_folder,
    chunks_of,
    encode_chunk,
    encode_report,
    ipc_batch,
    ipc_bytes,
)


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


def _sent(rows: pa.RecordBatch, file: ChunkFile) -> tuple[pa.RecordBatch, int]:
    """What a chunk's reader gets, and how many bytes go through the shuffle for it."""
    kind, payload = file.put(rows)
    row = encode_chunk(Chunk(kind=kind, table="shop.t", payload=payload))
    (back,) = chunks_of(row)
    assert back.kind is ChunkKind.CHANGES
    return ipc_batch(back.payload), row.nbytes


def test_rows_of_large_chunks_stay_in_a_file_of_the_task(tmp_path):
    large = [pa.record_batch({"id": np.arange(start, start + 50_000)}) for start in (0, 7)]
    small = pa.record_batch({"id": [1, 2, 3]})
    with ChunkFile(str(tmp_path)) as file:
        sent = [_sent(rows, file) for rows in (*large, small)]
    assert [rows for rows, _ in sent] == [*large, small]
    assert max(size for _, size in sent) < 2_000
    assert len(list(tmp_path.iterdir())) == 1
    for path in tmp_path.iterdir():
        path.unlink()
    assert sent[0][0] == large[0], "rows that a task has outlive the file"


def test_without_a_folder_rows_are_in_their_chunks(tmp_path):
    rows = pa.record_batch({"id": np.arange(50_000)})
    with ChunkFile("") as file:
        back, size = _sent(rows, file)
    assert back == rows
    assert size > rows.nbytes
    assert not list(tmp_path.iterdir())


def test_attempts_of_a_task_do_not_share_a_file(tmp_path):
    one, two = (pa.record_batch({"id": np.arange(50_000) * step}) for step in (1, 2))
    with ChunkFile(str(tmp_path)) as first, ChunkFile(str(tmp_path)) as second:
        sent = [_sent(one, first)[0], _sent(two, second)[0]]
    assert sent == [one, two]


def _conf(master: str, **conf: str) -> dict[str, str]:
    return {"spark.master": master, **{key.replace("_", "."): conf[key] for key in conf}}


def test_the_folder_of_a_run_ends_with_it(tmp_path):
    conf = _conf("local[2,4]", spark_local_dir=str(tmp_path))

    def fail() -> None:
        with chunk_folder(conf, 3) as folder:  # type: ignore[arg-type]
            assert pathlib.Path(folder).parent == tmp_path
            with ChunkFile(folder) as file:
                file.put(pa.record_batch({"id": np.arange(50_000)}))
            assert len(list(pathlib.Path(folder).iterdir())) == 1
            raise ValueError("the job failed")

    with pytest.raises(ValueError, match="failed"):
        fail()
    assert not list(tmp_path.iterdir())


def test_local_directories_take_turns(tmp_path, monkeypatch):
    monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)
    places = [tmp_path / "a", tmp_path / "b"]
    for place in places:
        place.mkdir()
    conf = _conf("local", spark_local_dir=",".join(map(str, places)))
    for turn in range(4):
        with chunk_folder(conf, turn) as folder:  # type: ignore[arg-type]
            assert os.path.dirname(folder) == str(places[turn % 2])


@pytest.mark.parametrize(
    ("master", "conf"),
    [
        ("local-cluster[2,1,1024]", {}),
        ("spark://host:7077", {}),
        ("k8s://https://host", {}),
        ("local[2,4]", {"spark_io_encryption_enabled": "true"}),
        ("local[2,4]", {"spark_io_encryption_enabled": "True"}),
    ],
)
def test_tasks_elsewhere_and_encryption_keep_rows_in_chunks(tmp_path, master, conf):
    conf = _conf(master, spark_local_dir=str(tmp_path), **conf)
    with chunk_folder(conf, 1) as folder:  # type: ignore[arg-type]
        assert folder == ""
    assert not list(tmp_path.iterdir())


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
