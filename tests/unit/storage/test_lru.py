# SPDX-License-Identifier: Apache-2.0
"""The cache of least recently used values."""

import threading
from typing import Any

from storage.clock import ManualClock
from storage.lru import LruCache


def weight(records: tuple[object, ...]) -> int:
    return len(records) + 1


def cache_of(limit: int, **arguments: Any) -> LruCache[str, tuple[object, ...]]:
    return LruCache(limit, weigh=weight, **arguments)


def test_the_cache_is_bounded_by_records() -> None:
    cache = cache_of(10)
    for i in range(20):
        cache.put(f"/m/{i}", (i,) * 4)
    assert cache.get("/m/0") is None
    assert cache.get("/m/19") == (19,) * 4
    assert cache.get("/m/18") == (18,) * 4
    cache.put("/m/20", (20,))
    assert cache.get("/m/19") is None
    assert cache.get("/m/18") is not None
    cache.put("/m/huge", tuple(range(100)))
    assert cache.get("/m/huge") is None
    assert cache.get("/m/20") is None


def test_the_cache_forgets_what_is_not_asked_for() -> None:
    clock = ManualClock()
    cache = cache_of(1000, unused_s=300, clock=clock)
    cache.put("/m/base", (0,))
    for i in range(1, 21):
        clock.advance(60_000)
        cache.put(f"/m/delta-{i}", (i,))
        assert cache.get("/m/base") == (0,)
    assert len(cache) == 7
    assert cache.get("/m/delta-14") is None
    assert cache.get("/m/delta-15") == (15,)


def test_the_cache_is_safe_between_threads() -> None:
    cache = cache_of(50)
    failures: list[object] = []

    def work(seed: int) -> None:
        for i in range(2000):
            name = f"/m/{(seed * 31 + i) % 40}"
            found = cache.get(name)
            if found is not None and found != (name,) * 3:
                failures.append(found)
            cache.put(name, (name,) * 3)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    held = [found for n in range(40) if (found := cache.get(f"/m/{n}")) is not None]
    assert sum(map(weight, held)) == cache.weight <= 50
