# SPDX-License-Identifier: Apache-2.0
"""The concrete offsets at which a new checkpoint starts.

The daemon writes them down before Spark plans its first batch, because Spark does not log them.
"""

from collections.abc import Mapping
from typing import Any

from ingest.source.open import open_source
from ingest.source.ranges import OffsetJson
from ingest.source.source_settings import SourceSettings

__all__ = ["initial_offsets"]


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
