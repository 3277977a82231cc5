# SPDX-License-Identifier: Apache-2.0
"""Hypothesis profiles: `short` for `make test`, `long` by HYPOTHESIS_PROFILE=long."""

import os

from hypothesis import HealthCheck, settings

_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]

settings.register_profile(
    "short", max_examples=50, deadline=None, print_blob=True, suppress_health_check=_SLOW
)
settings.register_profile(
    "long", max_examples=1000, deadline=None, print_blob=True, suppress_health_check=_SLOW
)


def profile() -> settings:
    """The settings for property tests of whole tables."""
    return settings.get_profile(os.environ.get("HYPOTHESIS_PROFILE", "short"))
