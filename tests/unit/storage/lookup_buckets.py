# SPDX-License-Identifier: Apache-2.0
"""A bucket whose rows are looked up, for tests, and what a lookup must find."""

import types

import msgspec
import pyarrow as pa

from storage.clock import ManualClock
from storage.format.types.types import SEQUENCE_NUMBER
from storage.lsm.key_order import sort_permutation
from storage.lsm.levels import SortedRun
from storage.lsm.lookup.store import BucketLookup, CopyLimits, LookupStore
from tests.unit.storage.key_value_files import STORE, key_values, write_all


class Vectors:
    """Deletion vectors in memory."""

    def __init__(self, **vectors):
        self.vectors = vectors

    def vector_of(self, data_file):
        return self.vectors.get(data_file)


def store_at(directory, clock=None):
    return LookupStore(directory, clock=clock or ManualClock())


def lookup_in(bucket, schema, store, *, schemas=None, limits=None, deletions=None, file_io=STORE):
    """A lookup in the files of a directory."""
    limits = limits or CopyLimits()
    context = types.SimpleNamespace(
        options=types.SimpleNamespace(
            lookup_cache_max_disk_size=limits.max_bytes,
            lookup_cache_file_retention_ms=limits.retention_ms,
            lookup_cache_max_memory_size=limits.max_mapped,
        ),
        layout=types.SimpleNamespace(root=str(bucket)),
        file_io=file_io,
        path_of=lambda file: f"{bucket}/{file.file_name}",
        schema=schema,
        schemas=(lambda _: schema) if schemas is None else schemas.__getitem__,
        deletions=deletions,
    )
    return BucketLookup(context, store)


def run_of(directory, schema, values, *, level=1, files=1, **arguments):
    """Rows, sorted by key and written to some files that follow one another."""
    rows = key_values(schema, values, **arguments)
    rows = rows.take(pa.array(sort_permutation(rows, schema.trimmed_primary_keys)))
    written = []
    step = -(-rows.num_rows // files)
    for number, start in enumerate(range(0, rows.num_rows, step)):
        folder = directory / f"{level}-{number}"
        folder.mkdir(parents=True)
        (meta,) = write_all(folder, schema, rows.slice(start, step), level=level)
        name = f"{level}-{number}-{meta.file_name}"
        (folder / meta.file_name).rename(directory / name)
        folder.rmdir()
        written.append(renamed(meta, name))
    return SortedRun(level, tuple(written))


def renamed(meta, name):
    return msgspec.structs.replace(meta, file_name=name)


def keys_of(schema, values):
    """Keys as they are asked for: sorted, each once."""
    fields = [field for field in key_values(schema, {
        name: [] for name in schema.field_names}).schema
        if field.name in schema.trimmed_primary_keys]  # fmt: skip
    batch = pa.RecordBatch.from_arrays(
        [pa.array(values[field.name], field.type) for field in fields], schema=pa.schema(fields)
    )
    return batch.take(pa.array(sort_permutation(batch, schema.trimmed_primary_keys)))


def sequences(found):
    """Key number to sequence number of the row."""
    return dict(zip(found.keys.tolist(), found.rows[SEQUENCE_NUMBER].to_pylist(), strict=True))
