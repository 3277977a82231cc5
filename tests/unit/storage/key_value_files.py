# SPDX-License-Identifier: Apache-2.0
"""Small key-value files for tests."""

import numpy as np
import pyarrow as pa

from storage.clock import ManualClock, SeededIds
from storage.format.files.data_file import (
    KeyValueFileWriter,
    key_value_schema,
    read_key_values,
)
from storage.format.metadata.schema import TableSchema
from storage.format.types.types import DataField, parse_type
from storage.io.local import LocalFileIO

STORE = LocalFileIO(durable=False)


def schema_of(*columns, keys=("k",), id_=0, options=None):
    """Columns as (name, type text) or (name, type text, id)."""
    fields = tuple(
        DataField(
            id=column[2] if len(column) > 2 else i, name=column[0], type=parse_type(column[1])
        )
        for i, column in enumerate(columns)
    )
    return TableSchema(id=id_, fields=fields, highest_field_id=100, primary_keys=tuple(keys),
                       options=options or {})  # fmt: skip


def key_values(schema, values, kinds=None, sequences=None):
    """A KeyValueBatch from Python values by column."""
    rows = len(next(iter(values.values())))
    wanted = key_value_schema(schema)
    columns = {
        "_SEQUENCE_NUMBER": list(range(rows)) if sequences is None else sequences,
        "_VALUE_KIND": [0] * rows if kinds is None else kinds,
        **values,
    }
    return pa.RecordBatch.from_arrays(
        [
            column if isinstance(column, pa.Array) else pa.array(column, field.type)
            for field in wanted
            for column in [columns[field.name]]
        ],
        schema=wanted,
    )


def writer_of(directory, schema, file_io=STORE, **arguments):
    return KeyValueFileWriter(
        file_io,
        str(directory),
        schema,
        id_source=SeededIds(7),
        clock=ManualClock(1_700_000_000_000),
        **arguments,
    )


def write_all(directory, schema, *batches, **arguments):
    writer = writer_of(directory, schema, **arguments)
    for batch in batches:
        writer.write(batch)
    return writer.close()


def read_back(directory, meta, schema, read_schema=None, columns=None, **arguments):
    batches = list(
        read_key_values(STORE, f"{directory}/{meta.file_name}", meta, schema,
                        read_schema or schema, columns, **arguments)
    )  # fmt: skip
    return pa.Table.from_batches(batches)


NUMBERS = schema_of(("k", "BIGINT NOT NULL"), ("v", "STRING"))


def numbers(start, count, **arguments):
    keys = np.arange(start, start + count)
    texts = [f"value {key * 7919 % 10007}" for key in keys.tolist()]
    return key_values(NUMBERS, {"k": keys, "v": texts}, sequences=keys + 100, **arguments)
