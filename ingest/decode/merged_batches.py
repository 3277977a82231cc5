# SPDX-License-Identifier: Apache-2.0
"""Change batches of the same target, from several decoders of one raw batch, as one."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from ingest.decode.events import OFFSET_COLUMN, ChangeBatch
from ingest.decode.row_batches import joined_rows

__all__ = ["merged"]


def merged(batches: Sequence[ChangeBatch]) -> list[ChangeBatch]:
    """One batch per target, in offset order; rows of one offset come from one of `batches`."""
    by_target: dict[object, list[ChangeBatch]] = {}
    for batch in batches:
        key = batch.target, batch.schema_id, batch.constants
        by_target.setdefault(key, []).append(batch)
    return [_joined(parts) for parts in by_target.values()]


def _joined(parts: Sequence[ChangeBatch]) -> ChangeBatch:
    if len(parts) == 1:
        return parts[0]
    rows = joined_rows([part.rows for part in parts])
    order = np.argsort(rows.column(OFFSET_COLUMN).to_numpy(), kind="stable")
    stamps = [
        stamp
        for part in parts
        for stamp in (part.min_source_ts_ms, part.max_source_ts_ms)
        if stamp is not None
    ]
    return dataclasses.replace(
        parts[0],
        rows=rows.take(pa.array(order)),
        min_source_ts_ms=min(stamps, default=None),
        max_source_ts_ms=max(stamps, default=None),
    )
