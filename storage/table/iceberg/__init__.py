# SPDX-License-Identifier: Apache-2.0
"""Iceberg metadata beside a table, over the same data files, at every commit."""

import logging

from storage.errors import LakewardError
from storage.table.core import TableCore

__all__ = ["publish_twin"]

_LOG = logging.getLogger(__name__)


def publish_twin(table: TableCore) -> None:
    """Bring the Iceberg metadata of a table to its newest snapshot, where options ask for it.

    The snapshot is published already: what fails here is logged and made up for by the next call.
    """
    if table.options.iceberg_storage == "disabled":
        return
    from storage.table.iceberg.twin import IcebergTwin

    try:
        IcebergTwin(table).sync()
    except (LakewardError, OSError, LookupError, ValueError):
        _LOG.warning(
            "the Iceberg metadata of a table was not published; the next commit tries again",
            exc_info=True,
            extra={"table": table.layout.root},
        )
