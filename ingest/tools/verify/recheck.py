# SPDX-License-Identifier: Apache-2.0
"""Keys that seemed to differ are read again; only what differs then too is reported.

A round reads the keys from the source, waits, reads them from the lake and once more from the
source. If both reads of the source agree, the key was at rest while the lake had time to follow: a
lake that still has something else differs. A key whose reads of the source disagree goes into the
next round; after the last one it is *moving*.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.observe.text_table import plain
from ingest.tools.verify.columns import Columns
from ingest.tools.verify.compare import (
    KEY_HASH,
    UNFIT,
    Comparison,
    Kind,
    Side,
    differing_keys,
    first_rows,
    hashed_schema,
)
from ingest.tools.verify.hashes import column_hashes
from ingest.tools.verify.lake import TableSide

REDACTED = "***"
_LONGEST = 120


@dataclasses.dataclass(frozen=True, slots=True)
class Example:
    """One key that differs.

    Attributes:
        kind: how.
        key: values by column.
        differences: of `DIFFERENT`: column, value in the source, value in the lake.
    """

    kind: Kind
    key: Mapping[str, Any]
    differences: tuple[tuple[str, Any, Any], ...] = ()

    @property
    def line(self) -> str:
        """For people."""
        text = ", ".join(f"{name} = {_short_text(value)}" for name, value in self.key.items())
        if self.differences:
            texts = [
                f"{name}: source {_short_text(source)}, lake {_short_text(lake)}"
                for name, source, lake in self.differences
            ]
            text += "  " + "; ".join(texts)
        return text

    def document(self) -> dict[str, Any]:
        """As plain values."""
        values: dict[str, Any] = {"kind": self.kind.name.lower(), "key": plain(self.key)}
        if self.differences:
            values["columns"] = {
                name: {"source": plain(source), "lake": plain(lake)}
                for name, source, lake in self.differences
            }
        return values


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Confirmed:
    """What remains of the candidates.

    Attributes:
        counts: keys that differ, by kind.
        moving: keys whose reads of the source never agreed.
        settled: keys that do not differ any more.
        unfit: keys among them that the lake's types cannot hold.
        examples: the first of each kind.
        source: rows of the source with keys that differ, as read last; of hashed rows.
        lake: the same of the lake.
        kinds: how keys differ, by the hash of the key.
    """

    counts: dict[Kind, int] = dataclasses.field(default_factory=dict)
    moving: int = 0
    settled: int = 0
    unfit: int = 0
    examples: tuple[Example, ...] = ()
    source: pa.Table | None = None
    lake: pa.Table | None = None
    kinds: dict[int, Kind] = dataclasses.field(default_factory=dict)


def confirm(
    source: Side,
    lake: TableSide,
    columns: Columns,
    comparison: Comparison,
    *,
    rounds: int,
    wait: Callable[[], None] | None,
    examples_per_kind: int,
    masked: Sequence[str] = (),
) -> Confirmed:
    """Read candidates again.

    Args:
        source: one side.
        lake: the other; it is refreshed after every wait.
        columns: what is compared.
        comparison: with the candidates.
        rounds: how often they are read again; 0 = they are reported as they are.
        wait: between the reads of the source and of the lake; None = no waiting.
        examples_per_kind: their number.
        masked: columns whose values no example shows.
    """
    show = _Examples(columns, examples_per_kind, masked)
    candidates, kinds = comparison.candidates, comparison.kinds
    if not columns.keyed:  # whole rows, which cannot be looked up
        return Confirmed(counts=_counts(kinds), examples=tuple(show.of_keys(candidates, kinds)))
    by_hash = dict(zip(candidates.column(KEY_HASH).to_pylist(), kinds, strict=True))
    unfit = _unfit_keys(candidates, columns)
    unfit_kinds = [kind for kind, flag in zip(kinds, unfit, strict=True) if flag]
    unfit_rows = candidates.filter(pa.array(unfit))
    keys = candidates.filter(pa.array(~unfit))
    in_source = in_lake = hashed_schema(columns).empty_table()
    moving: set[int] = set()
    differing: dict[int, Kind] = {}
    for _ in range(max(1, rounds)):
        if not keys.num_rows:
            break
        before = None
        if wait is not None and rounds:
            before = rows_of_keys(source, columns, keys)
            wait()
        lake.refresh()
        in_lake = rows_of_keys(lake, columns, keys)
        in_source = rows_of_keys(source, columns, keys)
        differing = differing_keys(in_source, in_lake)
        moving = set()
        if before is not None:
            moving = differing_keys(before, in_source).keys() & differing.keys()
        keys = first_rows(keys, np.array(list(differing), np.uint64))
    if not rounds:
        examples = show.of_pairs(differing, in_source, in_lake)
        return Confirmed(
            counts=_counts(kinds),
            unfit=len(unfit_kinds),
            examples=(*examples, *show.of_keys(unfit_rows, unfit_kinds)),
            source=in_source,
            lake=in_lake,
            kinds=differing,
        )
    at_rest = {key: kind for key, kind in differing.items() if key not in moving}
    examples = show.of_pairs(at_rest, in_source, in_lake)
    return Confirmed(
        counts=_counts([*at_rest.values(), *unfit_kinds]),
        moving=len(moving),
        unfit=len(unfit_kinds),
        settled=len(by_hash) - len(at_rest) - len(unfit_kinds) - len(moving),
        examples=(*examples, *show.of_keys(unfit_rows, unfit_kinds)),
        source=in_source,
        lake=in_lake,
        kinds=at_rest,
    )


def rows_of_keys(side: Side, columns: Columns, keys: pa.Table) -> pa.Table:
    """The rows of a side that have one of these keys."""
    parts = []
    for start in range(0, keys.num_rows, side.keys_at_once(keys.num_rows)):
        chunk = keys.slice(start, side.keys_at_once(keys.num_rows)).combine_chunks()
        (batch,) = chunk.select(columns.key_names).to_batches()
        hashes = chunk.column(KEY_HASH).combine_chunks()
        for rows in side.of_keys(batch):
            matches = rows.filter(pc.is_in(rows.column(KEY_HASH), value_set=hashes))
            if matches.num_rows:
                parts.append(matches)
    return pa.Table.from_batches(parts, schema=hashed_schema(columns))


def _counts(kinds: Sequence[Kind]) -> dict[Kind, int]:
    return {kind: list(kinds).count(kind) for kind in Kind}


def _unfit_keys(candidates: pa.Table, columns: Columns) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which rows have a key that the lake's types cannot hold: no side can look it up."""
    unfit = candidates.column(UNFIT)
    if unfit.null_count == len(unfit):
        return np.zeros(len(unfit), bool)
    names = set(columns.key_names)
    return np.array([not names.isdisjoint(dict(row or ())) for row in unfit.to_pylist()], bool)


@dataclasses.dataclass(frozen=True, slots=True)
class _Examples:
    """Makes examples.

    Attributes:
        columns: what is compared.
        per_kind: number of examples of each kind.
        masked: columns whose values are hidden.
    """

    columns: Columns
    per_kind: int
    masked: Sequence[str]

    def of_keys(self, rows: pa.Table, kinds: Sequence[Kind]) -> list[Example]:
        """Of rows without a counterpart."""
        examples: list[Example] = []
        for kind in Kind:
            indices = [index for index, actual in enumerate(kinds) if actual is kind][
                : self.per_kind
            ]
            examples += [Example(kind, self._key(rows.slice(index, 1))) for index in indices]
        return examples

    def of_pairs(
        self, differing: dict[int, Kind], source: pa.Table, lake: pa.Table
    ) -> list[Example]:
        """Of keys that differ."""
        examples: list[Example] = []
        for kind in Kind:
            keys = [key for key, actual in differing.items() if actual is kind]
            side = lake if kind is Kind.EXTRA else source
            rows = first_rows(side, np.array(keys, np.uint64)).slice(0, self.per_kind)
            for index in range(rows.num_rows):
                row = rows.slice(index, 1)
                hash_ = row.column(KEY_HASH)[0].as_py()
                differences: tuple[tuple[str, Any, Any], ...] = ()
                if kind is Kind.DIFFERENT:
                    counterpart = first_rows(lake, np.array([hash_], np.uint64))
                    differences = self._differences(row, counterpart)
                examples.append(Example(kind, self._key(row), differences))
        return examples

    def _differences(self, lake_rows: pa.Table, two: pa.Table) -> tuple[tuple[str, Any, Any], ...]:
        differences: list[tuple[str, Any, Any]] = []
        for column in self.columns.all:
            hashes = [
                column_hashes(row.column(column.name).combine_chunks())[0]
                for row in (lake_rows, two)
            ]
            if hashes[0] != hashes[1] or column.name in _unfit(lake_rows):
                values = [self._value(row, column.name) for row in (lake_rows, two)]
                differences.append((column.name, values[0], values[1]))
        return tuple(differences)

    def _key(self, row: pa.Table) -> dict[str, Any]:
        return {name: self._value(row, name) for name in self.columns.key_names}

    def _value(self, row: pa.Table, column: str) -> Any:
        if column in self.masked:
            return REDACTED
        if column in (unfit := _unfit(row)):
            return unfit[column]
        scalar = row.column(column)[0]
        try:
            return scalar.as_py()
        except (OverflowError, ValueError):  # a year that Python does not have
            return scalar.cast(pa.string()).as_py()


def _unfit(row: pa.Table) -> dict[str, str]:
    return dict(row.column(UNFIT)[0].as_py() or ())


def _short_text(value: object) -> str:
    text = "NULL" if value is None else repr(plain(value)) if _quoted(value) else str(plain(value))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text)} characters)"


def _quoted(value: object) -> bool:
    return isinstance(value, str | bytes)
