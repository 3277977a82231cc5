# SPDX-License-Identifier: Apache-2.0
"""Kinds of positions: how a connector's events encode the position of a change in its source.

Every kind fills three columns that are compared from left to right. Rows of one event may share all
of them where their keys differ (a change of key is a delete and an insert at one position); whether
a row deletes decides nothing, for a transaction may write a row and delete it.

| kind | `_seq_1` | `_seq_2` | `_seq_3` |
|---|---|---|---|
| mysql | number of the binlog file | position in it | index in the transaction, else 1 + row |
| mariadb | number of the binlog file | position in it | index in the transaction, else 1 |
| postgresql | last commit before the transaction, else the LSN | LSN | 0 |
| sqlserver | commit LSN, as text of fixed length | change LSN, likewise | serial number |
| oracle | SCN of the commit, else the SCN | SCN | number inside the SCN |

The index in the transaction needs `provide.transaction.metadata`. MariaDB's connector gives all
events of a transaction one position (observed with MariaDB 11.4 and Debezium 3.5), so that rows are
counted again under it: without the index, arrival orders the changes of one transaction. Rows of a
snapshot have `_seq_3` 0, below a change at the snapshot's own position.

PostgreSQL's LSN alone is in order for one key but not over keys, nor between changes and snapshots:
a snapshot does not see what commits later, whenever it was written. With the commit before the
transaction the order is that of the stream. Rows of a snapshot come right after that commit
(`_seq_2` is 0), or after the snapshot's LSN where the connector has seen no commit yet. Changes of
the one transaction that follows may have any LSN: they *float*, see `Positions`.

Source: CDC.md §1.3, §2.1, §2.2.
"""

import dataclasses
import re
from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from storage.format.types.type_text import parse_type
from storage.format.types.types import DataType

_Mask = npt.NDArray[np.bool_]

_LSN = r"^[0-9a-f]{8}:[0-9a-f]{8}:[0-9a-f]{4}$"
_NO_LSN = "00000000:00000000:0000"
_SEQUENCE = r'^\[\s*(?:"(?P<commit>\d+)"|null)\s*,\s*(?:"(?P<lsn>\d+)"|null)\s*\]$'
_DIGITS = r"^\d{1,38}$"
_LARGEST = re.compile(r"(\d{1,18})$")
_SCN = pa.decimal128(38, 0)


@dataclasses.dataclass(frozen=True, slots=True)
class Positions:
    """Positions of some events.

    Attributes:
        columns: `_seq_1`, `_seq_2`, `_seq_3`; `_seq_1` is null where the event has no position.
        floating: events that are not below anything before them in their partition, whatever their
            position says; None = none.
    """

    columns: tuple[pa.Array, pa.Array, pa.Array]
    floating: _Mask | None = None


Reader = Callable[[Mapping[str, pa.Array]], Positions]
"""Metadata to positions; it has `snapshot` besides the kind's."""


@dataclasses.dataclass(frozen=True, slots=True)
class PositionKind:
    """One kind.

    Attributes:
        name: of Debezium's connector, and as tables note it.
        types: of `_seq_1`, `_seq_2` and `_seq_3`.
        metadata: what it is read from (`ingest.decode.metadata_columns`).
        read: see `Reader`.
    """

    name: str
    types: tuple[DataType, DataType, DataType]
    metadata: tuple[str, ...]
    read: Reader


def in_snapshot(names: pa.Array) -> _Mask:
    """Which rows are read by a snapshot, by metadata `snapshot`."""
    streamed = pc.or_kleene(names.is_null(), pc.equal(names, "false"))
    mask: _Mask = pc.invert(streamed).to_numpy(zero_copy_only=False)
    return mask


def _binlog(metadata: Mapping[str, pa.Array], within: pa.Array) -> Positions:
    """Positions in a binlog, and indices within an event or transaction."""
    files = metadata["file"].dictionary_encode()
    numbers = [_LARGEST.search(name or "") for name in files.dictionary.to_pylist()]
    by_file = pa.array([None if n is None else int(n.group(1)) for n in numbers], pa.int64())
    positions = metadata["pos"]
    number = pc.if_else(positions.is_valid(), by_file.take(files.indices), None)
    snapshot = pa.array(in_snapshot(metadata["snapshot"]))
    within = pc.coalesce(metadata["total_order"], within)
    return Positions((number, positions, pc.if_else(snapshot, pa.scalar(0, pa.int64()), within)))


def _mysql(metadata: Mapping[str, pa.Array]) -> Positions:
    return _binlog(metadata, pc.add(metadata["row"].cast(pa.int64()).fill_null(0), 1))


def _mariadb(metadata: Mapping[str, pa.Array]) -> Positions:
    return _binlog(metadata, pa.repeat(pa.scalar(1, pa.int64()), len(metadata["pos"])))


def _numbers(texts: pa.Array, type_: pa.DataType) -> pa.Array:
    """Numbers parsed from texts; null where a text is not a number."""
    sound = pc.match_substring_regex(texts, _DIGITS if type_ == _SCN else r"^\d{1,18}$")
    return pc.if_else(sound, texts, pa.scalar(None, pa.string())).cast(type_)


def _postgresql(metadata: Mapping[str, pa.Array]) -> Positions:
    match = pc.extract_regex(metadata["sequence"], _SEQUENCE)
    commit, lsn = (_numbers(pc.struct_field(match, name), pa.int64()) for name in ("commit", "lsn"))
    lsn = pc.coalesce(metadata["lsn"], lsn)
    snapshot = in_snapshot(metadata["snapshot"])
    has_sequence = pc.greater(pc.binary_length(metadata["sequence"]), 0).fill_null(False)
    floating = pc.and_(has_sequence, commit.is_null()).to_numpy(zero_copy_only=False) & ~snapshot
    commit = pc.if_else(lsn.is_valid(), pc.coalesce(commit, lsn), None)
    lsn = pc.if_else(pc.and_(has_sequence, pa.array(snapshot)), pa.scalar(0, pa.int64()), lsn)
    zeros = pa.repeat(pa.scalar(0, pa.int64()), len(lsn))
    return Positions((commit, lsn, zeros), floating)


def _sqlserver(metadata: Mapping[str, pa.Array]) -> Positions:
    commit, change = (_lsn(metadata[name]) for name in ("commit_lsn", "change_lsn"))
    serial = metadata["event_serial_no"].fill_null(0)
    return Positions((commit, change.fill_null(_NO_LSN), serial))


def _lsn(texts: pa.Array) -> pa.Array:
    lower = pc.utf8_lower(texts)
    sound = pc.match_substring_regex(lower, _LSN)
    return pc.if_else(sound, lower, pa.scalar(None, pa.string()))


def _oracle(metadata: Mapping[str, pa.Array]) -> Positions:
    commit, scn = (_numbers(metadata[name], _SCN) for name in ("commit_scn", "scn"))
    first = pc.if_else(scn.is_valid(), pc.coalesce(commit, scn), None)
    return Positions((first, scn, metadata["ssn"].fill_null(0)))


_BIGINT, _STRING = parse_type("BIGINT"), parse_type("STRING")
_DECIMAL = parse_type("DECIMAL(38, 0)")

_NUMBERS = (_BIGINT, _BIGINT, _BIGINT)

KINDS: Mapping[str, PositionKind] = {
    kind.name: kind
    for kind in (
        PositionKind("mysql", _NUMBERS, ("file", "pos", "row", "total_order"), _mysql),
        PositionKind("mariadb", _NUMBERS, ("file", "pos", "total_order"), _mariadb),
        PositionKind("postgresql", _NUMBERS, ("lsn", "sequence"), _postgresql),
        PositionKind(
            "sqlserver",
            (_STRING, _STRING, _BIGINT),
            ("commit_lsn", "change_lsn", "event_serial_no"),
            _sqlserver,
        ),
        PositionKind(
            "oracle", (_DECIMAL, _DECIMAL, _BIGINT), ("commit_scn", "scn", "ssn"), _oracle
        ),
    )
}
"""By name."""

_BY_MEMBER = {
    "commit_lsn": "sqlserver",
    "scn": "oracle",
    "file": "mariadb",
    "lsn": "postgresql",
}

RECOGNISED_BY = ("connector", *_BY_MEMBER)
"""Metadata that reveals the kind."""


def kind_of(metadata: Mapping[str, object]) -> str:
    """The kind of an event; empty = its positions are not understood.

    Args:
        metadata: `RECOGNISED_BY` of the event; the members decide where no connector is named, as
            in flattened events. A binlog is then MariaDB's, whose rules hold for MySQL, too.
    """
    connector = metadata.get("connector")
    if connector is not None:
        return str(connector) if connector in KINDS else ""
    return next((kind for name, kind in _BY_MEMBER.items() if metadata.get(name) is not None), "")
