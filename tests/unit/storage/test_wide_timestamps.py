# SPDX-License-Identifier: Apache-2.0
"""Timestamps of all years go through a table and come back: every format, precision and depth.

The nanosecond range ends in 1677 and 2262; databases hold 0001-01-01 and 9999-12-31 all the time.
"""

import datetime
import itertools

import pyarrow as pa
import pytest

from changelog.stream_scan import StreamScan
from storage.errors import InvalidRequestError, LakewardError
from storage.format.schema_changes import SetOption
from storage.table.system import system_table
from tests.table_kit import make_table, rows_of, write

FORMATS = ("parquet", "orc", "avro")
TYPES = [
    f"TIMESTAMP({precision}){zone}"
    for precision in (0, 1, 2, 3, 4, 5, 6)
    for zone in ("", " WITH LOCAL TIME ZONE")
]
MOMENTS = (
    (1, 1, 1, 0, 0, 0),
    (1677, 9, 21, 0, 12, 43),
    (1900, 2, 28, 23, 59, 59),
    (1970, 1, 1, 0, 0, 0),
    (2024, 2, 29, 12, 0, 1),
    (2262, 4, 11, 23, 47, 17),
    (9999, 12, 31, 23, 59, 59),
)


def moments(text):
    zone = datetime.UTC if "ZONE" in text else None
    return [datetime.datetime(*parts, tzinfo=zone) for parts in MOMENTS]


@pytest.mark.parametrize("text", TYPES)
@pytest.mark.parametrize("file_format", FORMATS)
def test_nested_values_come_back_and_statistics_keep_the_rows(tmp_path, file_format, text):
    table = make_table(
        tmp_path,
        columns=(
            ("k", "INT"),
            ("t", text),
            ("a", f"ARRAY<{text}>"),
            ("m", f"MAP<INT, {text}>"),
            ("r", f"ROW<x INT, t {text}>"),
        ),
        options={"file.format": file_format, "metadata.stats-mode": "full"},
    )
    rows = [
        (n, one, [one, None], [(n, one)], {"x": n, "t": one})
        for n, one in enumerate(moments(text))
    ]
    write(table, [("+I", *row) for row in rows])
    write(table, [("+I", 99, None, None, None, None)], full=True)
    assert sorted(rows_of(table)) == [*rows, (99, None, None, None, None)]
    for n, one in enumerate(moments(text)):
        literal = one.replace(tzinfo=None).isoformat(sep=" ")
        assert [r[0] for r in rows_of(table, filter=f"t = '{literal}'")] == [n]
        assert sorted(r[0] for r in rows_of(table, filter=f"t <= '{literal}'")) == [*range(n + 1)]
    (file,) = system_table(table, "files").to_pylist()
    assert "0001-01-01" in file["min_value_stats"]
    assert "9999-12-31" in file["max_value_stats"]
