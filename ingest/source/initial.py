# SPDX-License-Identifier: Apache-2.0
"""The concrete offsets at which a new checkpoint starts.

The daemon writes them down before Spark plans its first batch, because Spark does not log them.
"""

from collections.abc import Mapping
from typing import Any

from ingest.config.source_settings import SourceSettings
from ingest.source.open import open_source
from ingest.source.ranges import OffsetJson

__all__ = ["initial_offsets", "rewind_offsets"]


def initial_offsets(settings: SourceSettings, recovered: Mapping[str, Any] | None) -> OffsetJson:
    """Where to start.

    Args:
        settings: the source; its startup mode counts only when nothing was recovered.
        recovered: offsets that the tables or the progress file hold; None for a new stream. What
            they do not name is read from its beginning.

    Raises:
        RetryableError: the source did not answer.
        DataLossError: a recovered place cannot be found.
    """
    source = open_source(settings)
    try:
        return source.initial() if recovered is None else source.restore(recovered)
    finally:
        source.close()


def rewind_offsets(
    settings: SourceSettings, start: Mapping[str, Any], position: Mapping[str, Any]
) -> OffsetJson:
    """Where to start so that records are read again.

    Args:
        settings: the source.
        start: wanted offsets; a partition that is missing is read from its beginning.
        position: up to where the stream has read.

    Raises:
        RetryableError: the source did not answer.
        DataLossError: records between the two are gone.
    """
    source = open_source(settings)
    try:
        return source.rewind(start, position)
    finally:
        source.close()
