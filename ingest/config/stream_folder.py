# SPDX-License-Identifier: Apache-2.0
"""Where a stream keeps what is not in its tables: `<warehouse>/.lakeward/<stream>`."""


def stream_folder(warehouse: str, stream: str) -> str:
    """The folder, beside the databases; it need not exist."""
    return f"{warehouse.rstrip('/')}/.lakeward/{stream}"
