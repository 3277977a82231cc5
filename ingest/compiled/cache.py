# SPDX-License-Identifier: Apache-2.0
"""The decorator of compiled functions, and the location of numba's cache. Imports numba."""

from collections.abc import Callable
from typing import Any

from numba import config, njit
from numba.core.caching import InTreeCacheLocator

from ingest.compiled.loading import folder, is_complete, stamp


class CompleteCache(InTreeCacheLocator):
    """Location of numba's cache; `loading` knows the dependencies of the functions."""

    def get_cache_path(self) -> str:
        """The directory of the cache."""
        return str(folder())

    def get_source_stamp(self) -> Any:
        """Stamp of the sources that a cached function must have been compiled from."""
        return stamp()

    def ensure_cache_path(self) -> None:
        """A complete cache need not be writable."""
        if not is_complete():
            super().ensure_cache_path()


def cached(signature: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator of a function that is compiled for one signature, or loaded from the cache."""

    def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
        before = config.CACHE_LOCATOR_CLASSES
        config.CACHE_LOCATOR_CLASSES = f"{__name__}.{CompleteCache.__name__}"
        try:
            dispatcher: Callable[..., Any] = njit([signature], cache=True, _nrt=False)(function)
        finally:
            config.CACHE_LOCATOR_CLASSES = before
        return dispatcher

    return compiled
