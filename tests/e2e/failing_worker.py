# SPDX-License-Identifier: Apache-2.0
"""Spark's Python workers of a test whose every source task fails, and speaks in every way before.

Spark starts it (`spark.python.daemon.module`) in the place of `ingest.daemon.worker_daemon`.
"""

import logging
import sys
import warnings

from ingest.daemon import worker_daemon
from ingest.pipeline import tasks


def _fail(*_):
    logging.getLogger("tests.worker").warning("about to fail", extra={"table": "shop.orders"})
    warnings.warn("something is old", stacklevel=1)
    sys.stderr.write("written past all logging\n")
    sys.stderr.flush()
    raise ZeroDivisionError("made to fail")


if __name__ == "__main__":
    tasks.map_task = _fail
    worker_daemon.main()
