# SPDX-License-Identifier: Apache-2.0
"""Worker processes that compact buckets for `lakeward compact`.

Not forked from this process, whose Arrow threads would not survive that, but from a server that
has imported the program and done nothing. A worker exits as soon as its parent process has
ended in any way, and ignores Ctrl-C: the parent decides what a signal means.
"""

import multiprocessing
import os
import signal
import threading
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor

import pyarrow as pa

__all__ = ["worker_pool"]

_ORPHANED = 75


def worker_pool(parallelism: int) -> Executor:
    """Workers for that many buckets at a time; with one, a thread of this process.

    Processes start when there is work for them.
    """
    if parallelism <= 1:
        return ThreadPoolExecutor(1, thread_name_prefix="compact")
    context = multiprocessing.get_context("forkserver")
    return ProcessPoolExecutor(parallelism, mp_context=context, initializer=_begin)


def _begin() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pa.set_cpu_count(1)  # the buckets are the parallelism
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_leave_with, args=(parent,), name="parent", daemon=True).start()


def _leave_with(parent: "multiprocessing.process.BaseProcess") -> None:
    parent.join()
    os._exit(_ORPHANED)
