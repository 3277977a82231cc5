# SPDX-License-Identifier: Apache-2.0
"""Forms of data files that Java writes and we never do."""

import io
import json

import pyarrow as pa
import pytest
from pyarrow import orc

from storage.format.avro.rows import RecordDecoder
from storage.format.files.orc.tail import read_tail
from storage.format.types.types import DataField, parse_type

RECORD = {"type": "record", "name": "r", "fields": [{"name": "k", "type": "int"}]}
FIELD = DataField(id=0, name="k", type=parse_type("INT NOT NULL"))


def test_an_orc_footer_in_lz4_is_as_long_as_it_is() -> None:
    table = pa.table({f"column_{n}": list(range(50)) for n in range(60)})
    output = io.BytesIO()
    orc.write_table(table, output, compression="lz4")
    tail = read_tail(pa.BufferReader(output.getvalue()), "f.orc")
    assert tail.rows == 50
    assert len(tail.stripes) == 1


def test_avro_rows_may_be_declared_nullable() -> None:
    decoder = RecordDecoder(json.dumps(["null", RECORD]), [FIELD])
    for repeats in (1, 30):
        found = decoder.decode([(b"\x02\x0a\x02\x0c", 2)] * repeats)
        assert [column.to_pylist() for column in found] == [[5, 6] * repeats]


def test_a_null_row_of_avro_is_refused() -> None:
    decoder = RecordDecoder(json.dumps(["null", RECORD]), [FIELD])
    with pytest.raises(ValueError, match="a row is null"):
        decoder.decode([(b"\x00", 1)])
    with pytest.raises(ValueError, match="a row is null"):
        decoder.decode([(b"\x00", 1)] * 30)
