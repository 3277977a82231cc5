# SPDX-License-Identifier: Apache-2.0
"""Settings that can be written but are not honoured yet: using one is an error that says so.

An entry goes when its capability is there.
"""

from collections.abc import Callable, Mapping

from ingest.configuration.setting_rules import not_yet
from ingest.configuration.setting_values import Settings

__all__ = ["refuse_unbuilt"]

_SETTINGS: Mapping[str, Callable[[Settings], bool]] = {}


def refuse_unbuilt(settings: Settings) -> None:
    """Refuse what this version would not do.

    Raises:
        UnsupportedFeatureError: a setting asks for it.
    """
    for key, asks in _SETTINGS.items():
        if asks(settings):
            raise not_yet(key)
