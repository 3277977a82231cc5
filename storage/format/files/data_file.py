# SPDX-License-Identifier: Apache-2.0
"""Data and changelog files: writing rows of a bucket as rolling files.

The entrance to data files: reading (`data_file_reader`), options (`data_file_options`) and the
layout (`key_value_layout`) are offered here too. How a file is encoded is in `file_formats`.
"""

import dataclasses

from storage.clock import Clock, IdSource
from storage.format.files.data_file_options import (
    CHANGELOG_PREFIX,
    DATA_PREFIX,
    INDEX_SUFFIX,
    DataFileNames,
    DataFileOptions,
    data_file_name,
)
from storage.format.files.data_file_reader import BATCH_ROWS, read_key_values, read_rows
from storage.format.files.key_value_layout import KeyValueLayout, RowLayout, key_value_schema
from storage.format.files.rolling_files import RollingFiles
from storage.format.metadata.file_meta import FileSource
from storage.format.metadata.schema import TableSchema
from storage.io.file_io import FileIO

__all__ = [
    "BATCH_ROWS",
    "CHANGELOG_PREFIX",
    "DATA_PREFIX",
    "INDEX_SUFFIX",
    "DataFileNames",
    "DataFileOptions",
    "KeyValueFileWriter",
    "RowFileWriter",
    "data_file_name",
    "key_value_schema",
    "read_key_values",
    "read_rows",
]


class KeyValueFileWriter(RollingFiles):
    """Writes sorted rows of one bucket of a primary-key table; protocol of `RollingFiles`.

    `write` takes KeyValueBatches (see `key_value_schema`) in key order, across calls too; keys
    unique unless it is a changelog.

    Args:
        file_io: the store.
        directory: bucket directory.
        schema: schema of the rows; its id is recorded.
        id_source: gives the UUID of the names unless `names` is given.
        clock: gives the creation time.
        options: see `DataFileOptions`.
        names: shared by the data and changelog writers of one bucket.
        prefix: of the file names; that of `options` unless given.
        level: recorded in the metadata.
        source: recorded in the metadata.
    """

    def __init__(
        self,
        file_io: FileIO,
        directory: str,
        schema: TableSchema,
        *,
        id_source: IdSource,
        clock: Clock,
        options: DataFileOptions | None = None,
        names: DataFileNames | None = None,
        prefix: str | None = None,
        level: int = 0,
        source: FileSource = FileSource.APPEND,
    ) -> None:
        options = options or DataFileOptions()
        if prefix is not None:
            options = dataclasses.replace(options, prefix=prefix)
        super().__init__(
            file_io,
            directory,
            KeyValueLayout(schema, options),
            names=names or DataFileNames(id_source),
            clock=clock,
            level=level,
            source=source,
        )


class RowFileWriter(RollingFiles):
    """Writes rows of one bucket of an append table; protocol of `RollingFiles`.

    `write` takes batches with the columns of the table, all rows inserts.

    Args:
        file_io: the store.
        directory: bucket directory.
        schema: schema of the rows; its id is recorded.
        id_source: gives the UUID of the names unless `names` is given.
        clock: gives the creation time.
        options: see `DataFileOptions`.
        names: shared by the writers of one bucket.
        first_sequence: sequence number of the first row; each further row has the next one.
        source: recorded in the metadata.
    """

    def __init__(
        self,
        file_io: FileIO,
        directory: str,
        schema: TableSchema,
        *,
        id_source: IdSource,
        clock: Clock,
        options: DataFileOptions | None = None,
        names: DataFileNames | None = None,
        first_sequence: int = 0,
        source: FileSource = FileSource.APPEND,
    ) -> None:
        super().__init__(
            file_io,
            directory,
            RowLayout(schema, options or DataFileOptions(), first_sequence),
            names=names or DataFileNames(id_source),
            clock=clock,
            level=0,
            source=source,
        )
