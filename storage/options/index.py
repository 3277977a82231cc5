# SPDX-License-Identifier: Apache-2.0
"""Rows of the option table about file indexes. See `option_table`."""

from storage.options.values import Option, boolean, memory_size, option, text

__all__ = ["FILE_INDEX"]

FILE_INDEX: tuple[Option, ...] = (
    option(
        "file-index.in-manifest-threshold",
        memory_size,
        "500 b",
        "Largest file index kept in the metadata instead of in a file of its own.",
        "bytes",
        attribute="file_index_threshold",
    ),
    option(
        "file-index.read.enabled",
        boolean,
        "true",
        "Leave out files and rows by their file indexes.",
        attribute="file_index_read_enabled",
    ),
    option(
        "file-index.<type>.columns",
        text,
        None,
        "Columns that get a file index of a type: bloom-filter, bitmap, bsi or range-bitmap; "
        "`m[k]` is key k of the map column m.",
        attribute="file_index_columns",
    ),
    option(
        "file-index.<type>.<column>.<setting>",
        text,
        None,
        "A setting of one file index: items and fpp of bloom-filter, version and "
        "index-block-size of bitmap, chunk-size of range-bitmap.",
        attribute="file_index_settings",
    ),
)
