# SPDX-License-Identifier: Apache-2.0
"""All kinds of requests. A new one is named here; how to write it: `ingest.requests.registry`."""

from collections.abc import Mapping

from ingest.requests.registry import RequestKind
from ingest.requests.reload import RELOAD
from ingest.requests.replay import DROP_BAD, REPLAY
from ingest.requests.stream_requests import COMPACT, PAUSE_STREAM, RESUME_STREAM
from ingest.requests.table_requests import PAUSE, RESUME

__all__ = ["KINDS"]

KINDS: Mapping[str, RequestKind] = {
    kind.name: kind
    for kind in (
        PAUSE,
        RESUME,
        PAUSE_STREAM,
        RESUME_STREAM,
        RELOAD,
        COMPACT,
        REPLAY,
        DROP_BAD,
    )
}
