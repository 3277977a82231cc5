# SPDX-License-Identifier: Apache-2.0
"""Settings of a pipeline from files, as a file of three lines gives them."""

import pathlib

from ingest.config.settings import Settings
from ingest.daemon.configuration import load_settings


def lake_settings(directory: pathlib.Path) -> Settings:
    """The pipeline `shop` reads files of a directory and writes the warehouse `lake` in it."""
    path = directory / "shop.yaml"
    path.write_text(
        f"source: {{type: files, path: {directory}}}\n"
        f"sink: {{warehouse: {directory / 'lake'}}}\npipeline: {{name: shop}}\n"
    )
    return load_settings(path)
