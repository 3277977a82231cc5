# SPDX-License-Identifier: Apache-2.0
"""A stream in the middle of its work, as one file: tables, checkpoint, and what it must come to.

`python -m tests.unit.ingest.old_state tests/unit/ingest/states/format-N.tar.xz` writes the state
as this version of Lakeward does. Do it when `STATE_FORMAT` is raised; never change the old ones.
"""

import io
import json
import random
import sys
import tarfile
import tempfile
from pathlib import Path

import pytest

from tests.unit.ingest.simulated_stream import Died, SimulatedStream
from tests.unit.ingest.state.test_parking_histories import Model


def write(target):
    """Traffic, a parked table, and a death in the middle of a batch's commits."""
    with tempfile.TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patch:
        root = Path(place)
        stream = SimulatedStream(root, patch)
        model = Model(stream, random.Random(4))
        model.traffic(40)
        stream.batch()
        stream.pause("shop.items")
        stream.batch()
        model.traffic(20)
        stream.fuse.left = 6
        with pytest.raises(Died):
            stream._batch()
        history = {
            "records": {
                topic: {
                    str(part): [[key.decode(), value.decode()] for key, value in records]
                    for part, records in parts.items()
                }
                for topic, parts in stream.topics.records.items()
            },
            "rows": {table: sorted(rows.items()) for table, rows in model.rows.items()},
            "bad": sorted(model.bad),
        }
        with tarfile.open(target, "w:xz") as tar:
            for name in ("lake", "checkpoint"):
                tar.add(root / name, name)
            data = json.dumps(history).encode()
            about = tarfile.TarInfo("history.json")
            about.size = len(data)
            tar.addfile(about, io.BytesIO(data))


def read(source, directory):
    """Unpack; (records by topic and partition, rows by table, bad records)."""
    with tarfile.open(source) as tar:
        tar.extractall(directory, filter="data")
    history = json.loads((directory / "history.json").read_text())
    records = {
        topic: {
            int(part): [(key.encode(), value.encode()) for key, value in pairs]
            for part, pairs in parts.items()
        }
        for topic, parts in history["records"].items()
    }
    rows = {table: dict(pairs) for table, pairs in history["rows"].items()}
    return records, rows, {tuple(each) for each in history["bad"]}


if __name__ == "__main__":
    write(Path(sys.argv[1]))
