# SPDX-License-Identifier: Apache-2.0
"""Several streams read at once and given one after the other, with a bound on what waits."""

import concurrent.futures
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

__all__ = ["read_ahead"]

_T = TypeVar("_T")

_WAIT_S = 0.1
"""How often a reader whose lane is full looks whether anybody still wants it."""


def read_ahead(
    sources: Sequence[Callable[[], Iterator[_T]]], *, threads: int, waiting: int = 4
) -> Iterator[_T]:
    """What all sources give, in their order; the next ones are read while one is taken.

    Args:
        sources: open a stream each; called in threads when `threads` > 1.
        threads: streams read at once; 1 = in the caller's thread, nothing ahead.
        waiting: items of a stream that wait at most; `threads` x `waiting` bound the memory.

    Yields:
        The items. Whoever stops early makes the readers stop.

    Raises:
        BaseException: what a source raised, at its place in the order.
    """
    if threads <= 1 or len(sources) <= 1:
        for source in sources:
            yield from source()
        return
    stopped = threading.Event()
    with concurrent.futures.ThreadPoolExecutor(threads, "read") as pool:
        try:
            lanes = [_Lane(source, stopped, waiting) for source in sources]
            filled = [pool.submit(lane.fill) for lane in lanes]
            for lane, future in zip(lanes, filled, strict=True):
                yield from lane
                future.result()
        finally:
            stopped.set()
            pool.shutdown(wait=True, cancel_futures=True)


class _Lane(Generic[_T]):
    """One stream on its way from the thread that reads it to the one that takes it."""

    def __init__(
        self, source: Callable[[], Iterator[_T]], stopped: threading.Event, waiting: int
    ) -> None:
        self._source = source
        self._stopped = stopped
        self._items: queue.Queue[_T | None] = queue.Queue(waiting)

    def fill(self) -> None:
        """Read the stream to its end, or until nobody wants more."""
        try:
            if not self._stopped.is_set():
                for item in self._source():
                    if not self._put(item):
                        return
        finally:  # a stream that fails ends, too; whoever takes it then asks why
            self._put(None)

    def _put(self, item: _T | None) -> bool:
        while not self._stopped.is_set():
            try:
                self._items.put(item, timeout=_WAIT_S)
            except queue.Full:
                continue
            return True
        return False

    def __iter__(self) -> Iterator[_T]:
        while (item := self._items.get()) is not None:
            yield item
