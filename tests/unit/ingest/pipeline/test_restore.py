# SPDX-License-Identifier: Apache-2.0
"""Values that the source did not send, from earlier rows of the batch and from the table."""

from decimal import Decimal

import pyarrow as pa
import pytest

from ingest.decode.events import HELD_ONLY, MOVED, UNAVAILABLE_COLUMN
from ingest.pipeline.tasks import restored
from tests.table_kit import make_table, rows_batch, write

COLUMNS = [("k", "BIGINT"), ("n", "INT"), ("text", "STRING"), ("blob", "BYTES")]
TEXT, BLOB = 2, 3
PARTITION = b"\x00\x00\x00\x00" + bytes(8)


def table_with(directory, **options):
    return make_table(directory, columns=COLUMNS, options=options)


def marked(table, rows, marks):
    batch = rows_batch(table, rows)
    if marks is None:
        return batch
    field = pa.field(UNAVAILABLE_COLUMN, pa.list_(pa.int32()))
    return batch.append_column(field, pa.array(marks, field.type))


def values(found):
    return [tuple(row.values()) for batch in found.rows for row in batch.to_pylist()]


def partition_of(table):
    (entry,) = {
        entry.partition for entry in table.new_scan().live_entries(table.latest_snapshot())
    } or {PARTITION}
    return entry


def test_rows_without_missing_values_pass_as_they_are(tmp_path):
    table = table_with(tmp_path)
    batch = marked(table, [("+I", 1, 1, "a", b"a")], None)
    found = restored([batch], table, b"", 0)
    assert found.rows == [batch]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"sequence.field": "n"},
        {"deletion-vectors.enabled": "true"},
        {"changelog-producer": "lookup"},
    ],
    ids=["plain", "sequence", "vectors", "lookup"],
)
@pytest.mark.parametrize("bucket", [0, None])
def test_values_come_from_the_stored_row(tmp_path, options, bucket):
    table = table_with(tmp_path, **options)
    write(table, 0, [("+I", k, 1, f"old {k}", b"old") for k in range(1, 50)])
    write(table, 1, [("+U", 3, 2, "newer 3", b"newer")], compaction=False)
    write(table, 2, [("-D", 5, 3, None, None)])
    rows = [("+U", 2, 9, None, None), ("+U", 3, 9, None, b"x"), ("+U", 7, 9, "y", None)]
    batch = marked(table, rows, [[TEXT, BLOB], [TEXT], None])

    found = restored([batch], table, partition_of(table), bucket)

    assert values(found) == [
        (2, 9, "old 2", b"old", 2),
        (3, 9, "newer 3", b"x", 2),
        (7, 9, "y", None, 2),
    ]
    assert (found.values, found.lost) == (3, 0)


def test_values_come_from_earlier_rows_of_the_batch_first(tmp_path):
    table = table_with(tmp_path)
    write(table, 0, [("+I", 1, 1, "stored", b"stored")])
    batches = [
        marked(table, [("+U", 1, 2, "sent", None), ("+I", 2, 1, "two", b"2")], [[BLOB], None]),
        marked(table, [("+U", 1, 3, None, None)], [[TEXT, BLOB]]),
        marked(table, [("+U", 2, 4, None, b"!")], [[TEXT]]),
        marked(table, [("+U", 1, 5, None, b"sent")], [[TEXT]]),
        marked(table, [("+I", 3, 6, None, None)], None),
    ]
    found = restored(batches, table, partition_of(table), 0)
    assert values(found) == [
        (1, 2, "sent", b"stored", 2),
        (1, 3, "sent", b"stored", 2),
        (1, 5, "sent", b"sent", 2),
        (2, 1, "two", b"2", 0),
        (2, 4, "two", b"!", 2),
        (3, 6, None, None, 0),
    ]


def moved(table, *batches):
    """Batches of (kind, key, n, text, blob) with marks where a None stands for `"?"`."""
    made = []
    for rows in batches:
        marks, plain = [], []
        for row in rows:
            ids = [number for number, value in ((TEXT, row[3]), (BLOB, row[4])) if value == "?"]
            marks.append([MOVED, *ids] if ids and row[0] == "+I" else ids or None)
            plain.append(tuple(None if value == "?" else value for value in row))
        made.append(marked(table, plain, marks))
    return made


def kept(found):
    return sorted(values(found), key=lambda row: row[0])


def test_a_moved_row_takes_the_stored_row_of_its_old_key(tmp_path):
    table = table_with(tmp_path)
    write(table, 0, [("+I", 1, 1, "stored", b"stored"), ("+I", 2, 1, "other", b"other")])
    rows = [("-D", 1, None, None, None), ("-D", 1, None, None, None), ("+I", 9, 5, "?", "?")]
    found = restored(moved(table, rows), table, partition_of(table), 0)
    assert kept(found) == [(1, None, None, None, 3), (9, 5, "stored", b"stored", 0)]
    assert (found.values, found.lost) == (2, 0)


def test_a_moved_row_takes_the_newest_row_of_its_old_key(tmp_path):
    """Changes of the old key earlier in the batch count, later ones of a new row do not."""
    table = table_with(tmp_path)
    write(table, 0, [("+I", 1, 1, "stored", b"stored")])
    batches = moved(
        table,
        [("+U", 1, 2, "newer", "?")],
        [("-D", 1, None, None, None), ("-D", 1, None, None, None), ("+I", 9, 5, "?", "?")],
        [("+I", 1, 7, "again", b"again"), ("+U", 9, 6, "?", b"own")],
    )
    found = restored(batches, table, partition_of(table), 0)
    assert [row for row in values(found) if row[0] == 9] == [
        (9, 5, "newer", b"stored", 0),
        (9, 6, "newer", b"own", 2),
    ]
    assert [row for row in values(found) if row[0] == 1] == [
        (1, 2, "newer", b"stored", 2),
        (1, None, None, None, 3),
        (1, 7, "again", b"again", 0),
    ]


def test_a_row_moves_twice_and_back(tmp_path):
    table = table_with(tmp_path)
    write(table, 0, [("+I", 1, 1, "stored", b"stored")])
    rows = [
        *(("-D", 1, None, None, None), ("-D", 1, None, None, None), ("+I", 5, 2, "?", "?")),
        *(("+U", 5, 3, "?", b"set"), ("-D", 5, None, None, None), ("-D", 5, None, None, None)),
        *(("+I", 3, 4, "?", "?"), ("-D", 3, None, None, None), ("+I", 1, 5, "?", "?")),
    ]
    found = restored(moved(table, rows), table, partition_of(table), 0)
    assert [row for row in values(found) if row[4] == 0] == [
        (1, 5, "stored", b"set", 0),
        (3, 4, "stored", b"set", 0),
        (5, 2, "stored", b"stored", 0),
    ]
    assert found.lost == 0


def test_a_moved_row_whose_old_row_nobody_has_is_counted(tmp_path):
    table = table_with(tmp_path)
    rows = [("-D", 1, None, None, None), ("+I", 9, 5, "sent", "?")]
    found = restored(moved(table, rows), table, PARTITION, 0)
    assert kept(found) == [(1, None, None, None, 3), (9, 5, "sent", None, 0)]
    assert (found.values, found.lost) == (0, 1)


def test_restoring_again_gives_the_same(tmp_path):
    """A task that is repeated, before the batch is committed."""
    table = table_with(tmp_path)
    write(table, 0, [("+I", 1, 1, "stored", b"stored")])
    rows = [("-D", 1, None, None, None), ("+I", 9, 5, "?", "?")]
    batches = moved(table, rows)
    first, second = (restored(batches, table, partition_of(table), 0) for _ in range(2))
    assert values(first) == values(second)


def test_values_that_nobody_has_are_counted(tmp_path):
    table = table_with(tmp_path)
    batch = marked(table, [("+U", 1, 2, None, None)], [[TEXT]])
    assert restored([batch], table, PARTITION, 0).lost == 1
    write(table, 0, [("+I", 2, 1, "x", b"x")])
    found = restored([batch], table, partition_of(table), 0)
    assert (values(found), found.values, found.lost) == ([(1, 2, None, None, 2)], 0, 1)


def test_partial_update_keeps_by_itself(tmp_path):
    table = table_with(tmp_path, **{"merge-engine": "partial-update"})
    write(table, 0, [("+I", 1, 1, "stored", b"stored")])
    found = restored([marked(table, [("+I", 1, 2, None, None)], [[TEXT]])], table, b"", 0)
    for batch in found.rows:
        with table.new_write("me") as writer:
            writer.write(batch)
            table.new_commit("me").commit(writer.prepare_commit(), 1)
    assert table.to_arrow().to_pylist() == [{"k": 1, "n": 2, "text": "stored", "blob": b"stored"}]


@pytest.mark.parametrize("options", [{}, {"merge-engine": "partial-update"}])
def test_rows_for_held_ones_alone(tmp_path, options):
    table = table_with(tmp_path, **options)
    write(table, 0, [("+I", 1, 1, "one", b""), ("+I", 2, 1, "two", b"")])
    rows = [
        ("+U", 1, 9, None, None),  # the table holds it
        ("-D", 2, 1, None, None),
        ("+U", 2, 9, None, None),  # it was deleted before
        ("+U", 3, 9, None, None),  # never heard of
        ("+U", 3, 8, None, None),
        ("+I", 4, 1, "four", b""),
        ("+U", 4, 9, None, None),  # it came before
        ("+U", 5, 9, None, None),
        ("+I", 5, 1, "five", b""),
    ]
    held = [0, 2, 3, 4, 6, 7]
    marks = [[HELD_ONLY, TEXT] if at in held else None for at in range(len(rows))]
    found = restored([marked(table, rows, marks)], table, partition_of(table), 0)
    keeps = bool(options)  # null keeps what is there
    assert [row[:3] for row in values(found)] == [
        (1, 9, None if keeps else "one"),
        (2, 1, None),
        (4, 1, "four"),
        (4, 9, None if keeps else "four"),
        (5, 1, "five"),
    ]
    assert (found.values, found.lost) == ((0, 0) if keeps else (2, 0))


def test_what_came_stands_where_nobody_has_a_value(tmp_path):
    table = table_with(tmp_path)
    batch = marked(table, [("+U", 1, 2, "computed", None)], [[TEXT]])
    assert values(restored([batch], table, PARTITION, 0)) == [(1, 2, "computed", None, 2)]


@pytest.mark.parametrize("key", ["BIGINT", "STRING", "DECIMAL(10, 2)"])
def test_a_key_is_found_in_any_partition(tmp_path, key):
    columns = (("p", "INT"), ("k", key), ("text", "STRING"))
    table = make_table(tmp_path, columns=columns, partitions=("p",), options={"bucket": "-1"})
    make = {"BIGINT": int, "STRING": str}.get(key, Decimal)
    write(table, 0, [("+I", k % 3, make(k), f"old {k}") for k in range(20)])
    rows = [("+U", 7, make(k), None) for k in (3, 4, 8, 50)]
    found = restored([marked(table, rows, [[2, HELD_ONLY]] * 4)], table, None, None)
    assert [row[:3] for row in values(found)] == [(7, make(k), f"old {k}") for k in (3, 4, 8)]
