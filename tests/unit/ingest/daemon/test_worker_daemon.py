# SPDX-License-Identifier: Apache-2.0
"""Memory of worker processes stays with them from batch to batch."""

import json
import platform
import subprocess
import sys

import pytest

BATCHES = """
import json, resource
from ingest.daemon.worker_daemon import keep_memory
if {kept}:
    keep_memory()
import numpy as np
import pyarrow as pa
import time

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

seen = []
for _ in range(6):
    before = faults()
    arrays = [np.ones(2 << 17) for _ in range(8)]
    buffers = [pa.concat_arrays([pa.array(array), pa.array(array)]) for array in arrays]
    del arrays, buffers
    time.sleep(0.05)
    pa.array([1])
    seen.append(faults() - before)
print(json.dumps(seen))
"""


def page_faults(*, kept: bool) -> list[int]:
    script = BATCHES.format(kept=kept)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries decide alone")
def test_later_batches_work_in_the_memory_of_earlier_ones():
    given_back, kept = page_faults(kept=False), page_faults(kept=True)
    assert min(given_back[2:]) > 1000
    assert sum(kept[2:]) < sum(given_back[2:]) / 3
