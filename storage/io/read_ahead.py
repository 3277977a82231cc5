# SPDX-License-Identifier: Apache-2.0
"""Several files read beside each other, given in the order they were asked for."""

import collections
import itertools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future

__all__ = ["REQUESTS_AT_ONCE", "read_ahead"]

REQUESTS_AT_ONCE = 16
"""Requests that a process has under way beside each other, at most."""


def read_ahead(
    pool: Executor, read: Callable[[str], bytes], paths: Sequence[str]
) -> Iterator[bytes]:
    """What `read` gives for each path; up to `REQUESTS_AT_ONCE` are under way or wait to be taken.

    An error arrives with the file it is about and ends the reading.
    """
    left = iter(paths)
    waiting: collections.deque[Future[bytes]] = collections.deque()

    def send(count: int) -> None:
        for path in itertools.islice(left, count):
            waiting.append(pool.submit(read, path))

    try:
        send(REQUESTS_AT_ONCE)
        while waiting:
            data = waiting.popleft().result()
            send(1)
            yield data
    finally:
        for each in waiting:
            each.cancel()
