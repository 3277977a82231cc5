# SPDX-License-Identifier: Apache-2.0
"""The orders table that every part works on, its changes, and what it must hold in the end.

Shape of PEERS' anchors: shuffled initial inserts, then batches of changes (80 % updates of random
live keys, 15 % inserts, 5 % deletes), each key at most once in a batch. About 97 bytes a row in
Arrow. Seeded; the model is kept in numpy and pyarrow, with none of the code that is measured.
"""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from storage.format.metadata.schema import TableSchema, new_schema
from storage.format.types.types import parse_type

COLUMNS = (
    ("id", "BIGINT NOT NULL", pa.int64()),
    ("user_id", "BIGINT", pa.int64()),
    ("amount", "DECIMAL(12, 2)", pa.decimal128(12, 2)),
    ("status", "STRING", pa.string()),
    ("note", "STRING", pa.string()),
    ("updated_at", "TIMESTAMP(6)", pa.timestamp("us")),
)
ARROW_SCHEMA = pa.schema([(name, type_) for name, _, type_ in COLUMNS])
KIND = "_VALUE_KIND"
INSERT, UPDATE, DELETE = 0, 2, 3
_STATUS = np.array(["created_", "paid____", "shipped_", "returned", "closed__"])
_BASE_US = 1_760_000_000_000_000


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much work: `inserts` rows at first, then `batches` batches of `changes` rows."""

    inserts: int = 1_000_000
    batches: int = 10
    changes: int = 100_000

    def quick(self) -> "Size":
        """A tenth of the rows."""
        return dataclasses.replace(self, inserts=self.inserts // 10, changes=self.changes // 10)

    @property
    def rows(self) -> int:
        """Rows and changes in all."""
        return self.inserts + self.batches * self.changes


def table_schema(options: dict[str, str]) -> TableSchema:
    """The orders table for our own storage."""
    return new_schema(
        [(name, parse_type(text)) for name, text, _ in COLUMNS],
        primary_keys=("id",),
        partition_keys=(),
        options=options,
        now_ms=1_760_000_000_000,
    )


def draw_rows(rng: np.random.Generator, ids: np.ndarray, tick: int) -> pa.Table:
    """Random rows with the given keys; `tick` moves their time on."""
    count = len(ids)
    words = np.empty((count, 2), np.int64)
    words[:, 0] = rng.integers(100, 10_000_000, count)
    words[:, 1] = 0
    amount = pa.Array.from_buffers(pa.decimal128(12, 2), count, [None, pa.py_buffer(words)])
    left, right = (rng.integers(0, 1 << 62, count).tolist() for _ in range(2))
    notes = [f"note {a:016x} {b:016x} ab" for a, b in zip(left, right, strict=True)]
    micros = _BASE_US + tick * 1_000_000 + np.arange(count)
    columns = [
        pa.array(ids.astype(np.int64)),
        pa.array(rng.integers(1, 200_000, count)),
        amount,
        pa.array(_STATUS[rng.integers(0, len(_STATUS), count)].tolist()),
        pa.array(notes),
        pa.array(micros).cast(pa.timestamp("us")),
    ]
    return pa.table(columns, schema=ARROW_SCHEMA)


class Orders:
    """The changes, in order, and the rows that are left after those taken so far."""

    def __init__(self, size: Size, seed: int = 7) -> None:
        self._size = size
        self._rng = np.random.default_rng(seed)
        self._live = np.zeros(size.inserts + size.batches * size.changes + 2, bool)
        self._written: list[pa.Table] = []

    def batches(self) -> Iterator[pa.Table]:
        """The inserts as one table, then one table per batch; each with a `_VALUE_KIND` int8."""
        size, rng = self._size, self._rng
        ids = rng.permutation(size.inserts) + 1
        self._live[ids] = True
        yield self._taken(draw_rows(rng, ids, 0), np.full(size.inserts, INSERT, np.int8))
        next_id = size.inserts + 1
        updates, inserts = int(size.changes * 0.8), int(size.changes * 0.15)
        deletes = size.changes - updates - inserts
        for number in range(size.batches):
            known = rng.choice(np.flatnonzero(self._live), updates + deletes, replace=False)
            fresh = np.arange(next_id, next_id + inserts)
            next_id += inserts
            ids = np.concatenate([known[:updates], fresh, known[updates:]])
            kinds = np.repeat(
                np.array([UPDATE, INSERT, DELETE], np.int8), (updates, inserts, deletes)
            )
            order = rng.permutation(size.changes)
            self._live[known[updates:]] = False
            self._live[fresh] = True
            yield self._taken(draw_rows(rng, ids[order], number + 1), kinds[order])

    def _taken(self, rows: pa.Table, kinds: np.ndarray) -> pa.Table:
        self._written.append(rows.filter(pa.array(kinds != DELETE)))
        return rows.append_column(KIND, pa.array(kinds))

    def final(self) -> pa.Table:
        """What the table holds after the batches taken so far, by key."""
        rows = pa.concat_tables(self._written).combine_chunks()
        ids = rows["id"].to_numpy()
        order = np.argsort(ids, kind="stable")
        ordered = ids[order]
        last = np.append(ordered[1:] != ordered[:-1], True)
        chosen = order[last]
        return rows.take(pa.array(chosen[self._live[ids[chosen]]])).combine_chunks()


def write_files(directory: Path, size: Size) -> list[Path]:
    """The batches as Parquet files with a column `op` (+I, +U, -D) too, and `final.parquet`."""
    directory.mkdir(parents=True, exist_ok=True)
    orders = Orders(size)
    ops = np.array(["+I", "-U", "+U", "-D"])
    paths = []
    for number, batch in enumerate(orders.batches()):
        path = directory / f"batch_{number:02d}.parquet"
        op = pa.array(ops[batch[KIND].to_numpy()].tolist())
        pq.write_table(batch.append_column("op", op), path)
        paths.append(path)
    pq.write_table(orders.final(), directory / "final.parquet")
    return paths


def differences(got: pa.Table, expected: pa.Table) -> list[str]:
    """Columns in which two states differ, value by value; `rows` when their counts do."""
    if got.num_rows != expected.num_rows:
        return [f"rows: {got.num_rows} instead of {expected.num_rows}"]
    columns = [got[field.name].cast(field.type) for field in ARROW_SCHEMA]
    got = pa.table(columns, schema=ARROW_SCHEMA)
    got = got.take(pc.sort_indices(got, sort_keys=[("id", "ascending")])).combine_chunks()
    return [
        name
        for name in ARROW_SCHEMA.names
        if not got[name].combine_chunks().equals(expected[name].combine_chunks())
    ]


def require_equal(got: pa.Table, expected: pa.Table, what: str) -> None:
    """Refuse a figure whose result is wrong.

    Raises:
        RuntimeError: the states differ.
    """
    wrong = differences(got, expected)
    if wrong:
        raise RuntimeError(f"{what}: wrong result in {wrong}")
