# SPDX-License-Identifier: Apache-2.0
"""Hypothesis profiles: `short` for `make test`, `long` by HYPOTHESIS_PROFILE=long."""

import os

from hypothesis import HealthCheck, settings

_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]

_BASE = settings(deadline=None, print_blob=True, suppress_health_check=_SLOW)


def profile(short: int = 30, long: int = 1000) -> settings:
    """The settings for property tests, with so many examples in the profile of these names.

    Raises:
        ValueError: HYPOTHESIS_PROFILE is neither.
    """
    name = os.environ.get("HYPOTHESIS_PROFILE", "short")
    if name not in ("short", "long"):
        raise ValueError(f"HYPOTHESIS_PROFILE is short or long, not {name}")
    return settings(_BASE, max_examples=short if name == "short" else long)
