# SPDX-License-Identifier: Apache-2.0
"""Public names of a package, imported on first use.

__getattr__, __dir__ = lazy_names(globals(), _MODULES)
"""

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def lazy_names(
    package: dict[str, Any], modules: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The functions by which a package provides names it has not imported (PEP 562).

    Args:
        package: its globals; names once requested are stored there.
        modules: the module of every public name.

    Returns:
        Its `__getattr__` and `__dir__`.
    """

    def get(name: str) -> Any:
        """A public name, from its module."""
        module = modules.get(name)
        if module is None:
            raise AttributeError(f"module {package['__name__']!r} has no attribute {name!r}")
        value = package[name] = getattr(importlib.import_module(module), name)
        return value

    def names() -> list[str]:
        """The public names, imported or not."""
        return sorted({*package, *modules})

    return get, names
