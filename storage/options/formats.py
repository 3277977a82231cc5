# SPDX-License-Identifier: Apache-2.0
"""Rows of the option table that one file format knows. See `option_table`.

Other keys that begin with `parquet.`, `orc.` or `avro.` are for the libraries of other engines.
"""

import functools

from storage.options.values import Option, boolean, choice, decimal_number, integer, option

__all__ = ["FORMATS"]

_setting = functools.partial(option, by_key=True)

FORMATS: tuple[Option, ...] = (
    _setting(
        "parquet.enable.dictionary",
        boolean,
        "true",
        "Columns whose values repeat get a dictionary.",
    ),
    _setting("parquet.page.size", integer, None, "Size of a data page.", "bytes"),
    _setting("parquet.dictionary.page.size", integer, None, "Largest dictionary.", "bytes"),
    _setting(
        "parquet.compression.codec.zstd.level",
        integer,
        None,
        "Level of zstd; as `file.compression.zstd-level` unless set.",
    ),
    _setting(
        "orc.stripe.size", integer, None, "Size of a stripe; `file.block-size` wins.", "bytes"
    ),
    _setting("orc.compress.size", integer, None, "Size of a chunk that is compressed.", "bytes"),
    _setting("orc.row.index.stride", integer, None, "Rows between entries of the index.", "rows"),
    _setting(
        "orc.block.padding.tolerance", decimal_number, None, "Share of a stripe lost to padding."
    ),
    _setting(
        "orc.dictionary.key.threshold",
        decimal_number,
        None,
        "Share of distinct values above which a column gets no dictionary.",
    ),
    _setting("orc.bloom.filter.fpp", decimal_number, None, "Share of false positives."),
    _setting(
        "orc.timestamp-ltz.legacy.type",
        boolean,
        "true",
        "How TIMESTAMP_LTZ was stored by Java machines that do not run in UTC.",
    ),
    _setting(
        "avro.codec",
        choice(
            *("zstd", "zstandard", "snappy", "deflate", "gzip", "zlib", "bzip2", "xz"),
            *("null", "none", "uncompressed"),
        ),
        None,
        "Compression of Avro files, before `file.compression`.",
    ),
)
"""Every row, in the order of table-options.md."""
