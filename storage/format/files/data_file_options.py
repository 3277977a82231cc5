# SPDX-License-Identifier: Apache-2.0
"""Options that shape a data or changelog file, and its name.

Names: FORMAT.md §1.3. Options: §7.2; those per level and of changelog files are resolved here.
"""

import dataclasses
import itertools
import threading
from collections.abc import Mapping

from storage.clock import IdSource
from storage.format.index.builder import FileIndexSpec
from storage.options.options import TableOptions

DATA_PREFIX = "data-"
CHANGELOG_PREFIX = "changelog-"
INDEX_SUFFIX = ".index"
"""Of the file index of a data file, after the data file's whole name."""

_ROW_GROUP_BYTES = 32 << 20
_UNPACKED = 4
"""How much larger rows are in Arrow than in a zstd file; PEERS.md §4 measured 3.2 to 3.6."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DataFileOptions:
    """How data files are written; defaults are Paimon's unless a reason is given.

    Attributes:
        target_file_size: a file is closed once it holds this much [bytes].
        target_file_rows: a file written for new rows is closed once it has so many.
        stats_mode: `metadata.stats-mode`, for value columns.
        field_stats_modes: mode per column, where it differs.
        stats_first_columns: only the first so many value columns get statistics, besides those
            with a mode of their own; all of them when negative.
        dense_stats: leave columns without statistics out of the metadata.
        row_group_bytes: Arrow bytes per row group. Paimon's 128 MB is Java's encoded size and
            would hold a bucket's whole write buffer; a quarter of that bounds what a reader
            must decode at once, and suits all readers.
        thin: leave out the key columns, which repeat value columns.
        index_threshold: largest file index that is put into the metadata [bytes].
        table_options: the options of the table, of which a format passes on its own.
    """

    target_file_size: int = 128 << 20
    target_file_rows: int | None = None
    file_format: str = "parquet"
    compression: str = "zstd"
    zstd_level: int = 1
    stats_mode: str = "truncate(16)"
    field_stats_modes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    stats_first_columns: int = -1
    dense_stats: bool = True
    suffix_includes_compression: bool = False
    row_group_bytes: int = _ROW_GROUP_BYTES
    prefix: str = DATA_PREFIX
    thin: bool = False
    indexes: tuple[FileIndexSpec, ...] = ()
    index_threshold: int = 500
    table_options: TableOptions | None = None

    @staticmethod
    def of(
        options: TableOptions, *, level: int | None = None, changelog: bool = False
    ) -> "DataFileOptions":
        """The file options from the options of a table.

        Args:
            options: of the table.
            level: of the files; None for those of append tables, which have none.
            changelog: for changelog files instead of data files.
        """
        chosen = _file_settings(options, level, changelog=changelog)
        target = options.target_file_size
        if "target-file-size" not in options.raw and level is None and not changelog:
            target = 2 * target  # append tables have larger files (FORMAT.md §7.2)
        row_group_bytes = _ROW_GROUP_BYTES
        if options.file_block_size is not None:
            row_group_bytes = max(1, options.file_block_size * _UNPACKED)
        return DataFileOptions(
            target_file_size=target,
            target_file_rows=None if changelog else options.target_file_rows,
            file_format=chosen[0].lower(),
            compression=chosen[1],
            zstd_level=options.zstd_level,
            stats_mode=chosen[2],
            field_stats_modes=options.field_stats_modes,
            stats_first_columns=options.stats_keep_first_columns,
            dense_stats=options.stats_dense_store,
            suffix_includes_compression=options.file_suffix_include_compression,
            # a file ends with a row group: for a small target, row groups must be small too
            row_group_bytes=min(row_group_bytes, _UNPACKED * target),
            prefix=options.changelog_file_prefix if changelog else options.data_file_prefix,
            thin=options.data_file_thin_mode,
            # changelogs are read from one end to the other
            indexes=() if changelog else FileIndexSpec.of(options),
            index_threshold=options.file_index_threshold,
            table_options=options,
        )


def _file_settings(
    options: TableOptions, level: int | None, *, changelog: bool
) -> tuple[str, str, str]:
    """Format, compression and statistics mode: of changelog files, of the level, or of all."""
    default = (options.file_format, options.file_compression, options.stats_mode)
    per_level = (
        options.file_format_per_level,
        options.file_compression_per_level,
        options.stats_mode_per_level,
    )
    of_changelog = (
        options.changelog_file_format,
        options.changelog_file_compression,
        options.changelog_file_stats_mode,
    )
    values = []
    for common, levels, override in zip(default, per_level, of_changelog, strict=True):
        at_level = common if level is None else levels.get(level, common)
        values.append(override if changelog and override is not None else at_level)
    return values[0], values[1], values[2]


def data_file_name(prefix: str, uuid: str, number: int, options: DataFileOptions) -> str:
    """`<prefix><uuid>-<n>.<format>`, with the codec before the format if so configured."""
    codec = f".{options.compression}" if options.suffix_includes_compression else ""
    return f"{prefix}{uuid}-{number}{codec}.{options.file_format}"


class DataFileNames:
    """Names of all files one bucket writer makes: one UUID, one counter for data and changelog.

    Thread-safe. Not to be shared between processes.
    """

    def __init__(self, id_source: IdSource) -> None:
        self._uuid = id_source.uuid()
        self._numbers = itertools.count()
        self._lock = threading.Lock()

    def next(self, prefix: str, options: DataFileOptions) -> str:
        """The next unused name."""
        with self._lock:
            number = next(self._numbers)
        return data_file_name(prefix, self._uuid, number, options)
