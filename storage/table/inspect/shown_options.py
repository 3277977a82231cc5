# SPDX-License-Identifier: Apache-2.0
"""Options of a table as they are shown."""

from collections.abc import Mapping

from storage.io.object_store.options import redacted_options
from storage.options.iceberg import REST_PREFIX
from storage.options.options import find_option


def shown_options(options: Mapping[str, str]) -> dict[str, str]:
    """Options of a table fit to be shown: others than table options may be secrets of a store."""
    hidden = redacted_options(options)
    return {
        key: text if find_option(key) and not key.startswith(REST_PREFIX) else hidden[key]
        for key, text in options.items()
    }
