# SPDX-License-Identifier: Apache-2.0
"""A full compaction in a process of its own, for the memory it takes.

`python -m tests.bench.full_compaction_child '{"step": "make", "folder": …, "rows": …, "runs": …}'`
writes level-0 files whose keys overlap everywhere; step `compact` with `options` merges them.
"""

import json
import pickle
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from storage.lsm.merge_tree_writer import MergeTreeWriter
from tests.bench import workload
from tests.bench.measure import cpu_s, peak_mb
from tests.bench.merge import bucket_context

_FILES = "files.pickle"


def make(folder: Path, rows: int, runs: int) -> dict[str, Any]:
    """Write the files; each of them holds every key with the same chance."""
    rng = np.random.default_rng(1)
    size = rows // runs
    files: list[Any] = []
    with MergeTreeWriter(bucket_context(folder), (), compaction=False) as writer:
        for number in range(runs):
            ids = rng.choice(rows * 3 // 4, size, replace=False) + 1
            table = workload.draw_rows(rng, ids, number).append_column(
                workload.KIND, pa.array(np.zeros(size, np.int8))
            )
            writer.write(table.combine_chunks().to_batches()[0])
            files += writer.prepare_commit().data.new_files
    (folder / _FILES).write_bytes(pickle.dumps(files))
    return {"files": len(files)}


def compact(folder: Path, options: dict[str, str]) -> dict[str, Any]:
    """Merge all files into the last level."""
    files = pickle.loads((folder / _FILES).read_bytes())
    started, cpu = time.perf_counter(), cpu_s()
    with MergeTreeWriter(bucket_context(folder, **options), files, compaction=False) as writer:
        writer.compact(full=True)
        rows = sum(file.row_count for file in writer.levels.files())
        return {
            "wall_s": time.perf_counter() - started,
            "cpu_s": cpu_s() - cpu,
            "rows": rows,
            "peak_mb": peak_mb(),
        }


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    place = Path(given["folder"])
    if given["step"] == "make":
        found = make(place, given["rows"], given["runs"])
    else:
        found = compact(place, given["options"])
    sys.stdout.write(json.dumps(found) + "\n")
