# SPDX-License-Identifier: Apache-2.0
"""Positions of whole columns against the same rules row by row; and the positions of each kind."""

import bisect

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.decode.columns import origin_schema
from ingest.source.records import KINDS, RECOGNISED_BY, kind_of
from ingest.state.stream_state import METADATA, Highest, Track, highest_of, stored
from tests.property.profiles import profile

POSTGRES = KINDS["postgresql"]
NAMES = (*METADATA, *POSTGRES.metadata)

rows = st.lists(
    st.tuples(
        st.sampled_from(["false", "true", "incremental", None]),
        st.one_of(st.none(), st.integers(0, 6)),  # time
        st.one_of(st.none(), st.integers(0, 4)),  # last commit
        st.one_of(st.none(), st.integers(0, 5)),  # LSN
    ),
    max_size=12,
)


def origin(events):
    columns = {name: [] for name in NAMES}
    for snapshot, ts, commit, lsn in events:
        texts = [None if part is None else f'"{part}"' for part in (commit, lsn)]
        told = f"[{texts[0] or 'null'},{texts[1] or 'null'}]"
        for name, value in zip(NAMES, ("m", snapshot, ts, lsn, told), strict=True):
            columns[name].append(value)
    arrays = [pa.array(columns[name], origin_schema([name]).field(0).type) for name in NAMES]
    return pa.RecordBatch.from_arrays(arrays, names=list(NAMES))


class Naive:
    """The rules, one row at a time."""

    def __init__(self, epochs):
        self.epochs = epochs
        self.epoch, self.high, self.ts = 0, None, None

    def place(self, events):
        placed, repeated, begun = [], 0, []
        for snapshot, ts, commit, lsn in events:
            if snapshot == "incremental" or lsn is None:
                placed.append(self.high)
                continue
            streamed = snapshot in ("false", None)
            if ts is not None:
                self.epoch = max(self.epoch, bisect.bisect_right(self.epochs, ts))
            first = lsn if commit is None else commit
            own = (self.epoch, first, lsn if streamed else 0, 0)
            if streamed and commit is None:
                own = own if self.high is None else max(own, self.high)
            else:
                fallen = self.high is not None and own < self.high
                repeated += streamed and self.high is not None and own <= self.high
                if fallen and ts is not None and self.ts is not None and ts > self.ts:
                    begun.append(ts)
            placed.append(own)
            self.high = own if self.high is None else max(own, self.high)
            if ts is not None:
                self.ts = ts if self.ts is None else max(ts, self.ts)
        return placed, repeated, min(begun, default=None)


@profile(short=100, long=1200)
@given(
    batches=st.lists(rows, max_size=3), epochs=st.lists(st.integers(1, 6), max_size=2, unique=True)
)
def test_columns_as_row_by_row(batches, epochs):
    naive, highest = Naive(sorted(epochs)), Highest()
    for events in filter(None, batches):
        found = Track(POSTGRES, sorted(epochs), highest).place(origin(events))
        placed, repeated, begun = naive.place(events)
        got = list(zip(*(column.to_pylist() for column in found.columns), strict=True))
        assert got == [(None,) * 4 if each is None else each for each in placed]
        assert (found.repeated, found.epoch_ms) == (repeated, begun)
        highest = highest_of(POSTGRES, stored(found.highest))
        assert highest == found.highest


def positions(kind, **metadata):
    names = ("snapshot", *KINDS[kind].metadata)
    count = len(next(iter(metadata.values())))
    arrays = {
        name: pa.array(metadata.get(name, [None] * count), origin_schema([name]).field(0).type)
        for name in names
    }
    found = KINDS[kind].read(arrays)
    return list(zip(*(column.to_pylist() for column in found.columns), strict=True))


def test_binlog_files_are_compared_by_number():
    files = ["mysql-bin.999999", "mysql-bin.1000000", "", None, "odd"]
    found = positions("mysql", file=files, pos=[1] * 5, row=[0, 2, 0, 0, 0])
    assert [each[0] for each in found] == [999_999, 1_000_000, None, None, None]
    assert [each[2] for each in found] == [1, 3, 1, 1, 1]


def test_places_in_a_transaction_count_where_there_are_any():
    more = {"file": ["b.1"] * 3, "pos": [4] * 3, "snapshot": ["false", "false", "last"]}
    for kind, expected in (("mysql", [9, 6, 0]), ("mariadb", [9, 1, 0])):
        more |= {"row": [5] * 3} if kind == "mysql" else {}
        given_ = {n: v for n, v in more.items() if n == "snapshot" or n in KINDS[kind].metadata}
        found = positions(kind, total_order=[9, None, None], **given_)
        assert [each[2] for each in found] == expected


def test_sql_servers_positions_are_compared_as_text_of_one_case():
    found = positions(
        "sqlserver",
        commit_lsn=["0000002A:00000758:0005", "0000002a:00000758:0006", "NULL", None],
        change_lsn=["00000029:00000758:0003", None, None, None],
        event_serial_no=[2, None, 1, 1],
    )
    assert found[0] < found[1]
    assert found[1][1:] == ("00000000:00000000:0000", 0)
    assert [each[0] for each in found[2:]] == [None, None]


def test_oracles_numbers_of_any_length():
    long = "9" * 30
    found = positions("oracle", scn=["5", long, "x", None], commit_scn=[None, long, "7", "8"])
    assert [each[0] and int(each[0]) for each in found] == [5, int(long), None, None]


@pytest.mark.parametrize(
    ("metadata", "kind"),
    [
        ({"connector": "mysql", "file": "b.1"}, "mysql"),
        ({"connector": "mariadb"}, "mariadb"),
        ({"connector": "mongodb", "lsn": 5}, ""),
        ({"lsn": 5}, "postgresql"),
        ({"file": "b.1"}, "mariadb"),
        ({"commit_lsn": "x"}, "sqlserver"),
        ({"scn": "1"}, "oracle"),
        ({}, ""),
    ],
)
def test_the_kind_is_the_connectors_or_what_the_members_say(metadata, kind):
    assert kind_of({**dict.fromkeys(RECOGNISED_BY), **metadata}) == kind
