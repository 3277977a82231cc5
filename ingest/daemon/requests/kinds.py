# SPDX-License-Identifier: Apache-2.0
"""All kinds of requests. How to write one: `ingest.daemon.requests.registry`."""

from collections.abc import Mapping

from ingest.daemon.requests.registry import RequestKind
from ingest.daemon.requests.reload import RELOAD
from ingest.daemon.requests.replay import DROP_BAD, REPLAY
from ingest.daemon.requests.stream_requests import COMPACT, PAUSE_STREAM, RESUME_STREAM
from ingest.daemon.requests.table_requests import PAUSE, RESUME

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
