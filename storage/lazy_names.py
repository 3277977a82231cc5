# SPDX-License-Identifier: Apache-2.0
"""Public names of a package that are imported when they are first asked for.

__getattr__, __dir__ = lazy_names(globals(), _MODULES)
"""

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def lazy_names(
    package: dict[str, Any], modules: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """What a package needs to give names that it has not imported (PEP 562).

    Args:
        package: its globals; names that were asked for stay there.
        modules: the module of every public name.

    Returns:
        Its `__getattr__` and `__dir__`.
    """

    def get(name: str) -> Any:
        """A public name, from its module."""
        module = modules.get(name)
        if module is None:
            raise AttributeError(f"module {package['__name__']!r} has no attribute {name!r}")
        found = package[name] = getattr(importlib.import_module(module), name)
        return found

    def names() -> list[str]:
        """What is public, imported or not."""
        return sorted({*package, *modules})

    return get, names
