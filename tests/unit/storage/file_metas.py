# SPDX-License-Identifier: Apache-2.0
"""Data file descriptions for tests of pure modules; their keys are plain decimal numbers."""

import itertools

from storage.format.metadata.file_meta import EMPTY_STATS, DataFileMeta

_names = itertools.count()


def key_of(key):
    return (int(key),)


def file_meta(level=0, least=0, most=0, *, size=1, sequence=None, name=None, **others):
    number = next(_names)
    sequence = number if sequence is None else sequence
    return DataFileMeta(
        file_name=name or f"data-{number}.parquet",
        file_size=size,
        row_count=others.pop("rows", 1),
        min_key=b"%d" % least,
        max_key=b"%d" % most,
        key_stats=EMPTY_STATS,
        value_stats=EMPTY_STATS,
        min_sequence_number=others.pop("min_sequence", sequence),
        max_sequence_number=sequence,
        schema_id=0,
        level=level,
        delete_row_count=others.pop("deletes", 0),
        **others,
    )


def ranges(files):
    return [[int(file.min_key), int(file.max_key)] for file in files]
