# SPDX-License-Identifier: Apache-2.0
"""Compactions of random levels against a model that merges key by key.

The model is written from SEMANTICS.md §C.2, §C.3, §C.6, §D.6 and §E; it shares the plan of a unit
with the compactor, and nothing else.
"""

import random

import pytest

from storage.errors import InvalidRequestError
from storage.lsm.compaction_policy import CompactUnit
from storage.lsm.lookup.store import BucketLookup, LookupStore
from storage.lsm.merge_tree_writer import plan_unit
from tests.property.merge_model import Engine, UnsupportedRetraction, in_order
from tests.unit.storage.bucket_of_levels import Bucket, schema_of, with_lookup_of

COLUMNS = {"k": "INT", "a": "BIGINT", "g": "INT", "s": "STRING"}
ADDS = ("+I", "+U")
ALL = ("+I", "+U", "+I", "+U", "-U", "-D")

PARTIAL = {"merge-engine": "partial-update"}
GROUPS = PARTIAL | {"fields.g.sequence-group": "a"}
SUM = {"merge-engine": "aggregation", "fields.a.aggregate-function": "sum"}
LOOKUP = {"changelog-producer": "lookup"}
FULL = {"changelog-producer": "full-compaction"}
DV = {"deletion-vectors.enabled": "true"}
ONCE = {"changelog-producer.row-deduplicate": "true"}
BUT_S = {"changelog-producer.row-deduplicate-ignore-fields": "s"}

ENGINES = {
    "deduplicate": ({}, ALL),
    "deduplicate by sequence": ({"sequence.field": "g"}, ALL),
    "partial-update": (PARTIAL, ADDS),
    "partial-update with deletes": (PARTIAL, ALL),
    "partial-update removing": (
        PARTIAL | {"partial-update.remove-record-on-delete": "true"},
        ALL,
    ),
    "sequence groups": (GROUPS, ALL),
    "sequence groups, sum": (GROUPS | {"fields.a.aggregate-function": "sum"}, ALL),
    "sequence groups removing": (
        GROUPS | {"partial-update.remove-record-on-sequence-group": "g"},
        ALL,
    ),
    "sum": (SUM, ALL),
    "sum by sequence": (SUM | {"sequence.field": "g"}, ADDS),
    "sum removing": (SUM | {"aggregation.remove-record-on-delete": "true"}, ALL),
    "listagg": (SUM | {"fields.s.aggregate-function": "listagg"}, ADDS),
}
WAYS = {
    "none": {},
    "lookup": LOOKUP,
    "lookup once": LOOKUP | ONCE,
    "lookup but s": LOOKUP | ONCE | BUT_S,
    "full": FULL,
    "full once": FULL | ONCE,
    "vectors": DV,
    "vectors and lookup": DV | LOOKUP,
    "forced": {"force-lookup": "true"},
}


class Model:
    """What one compaction makes of rows."""

    def __init__(self, options):
        self.engine = Engine(list(COLUMNS), ["k"], options)
        self.options = options
        self.first_row = options.get("merge-engine") == "first-row"
        self.producer = options.get("changelog-producer", "none")
        self.vectors = "deletion-vectors.enabled" in options
        self.needs_lookup = (
            self.vectors or self.first_row or self.producer == "lookup" or "force-lookup" in options
        )
        self.by_position = (
            self.vectors
            and self.producer != "lookup"
            and self.engine.engine == "deduplicate"
            and not self.engine.sequence
        )

    def merged(self, rows, *, lone):
        """(sequence number, kind, values) of rows (level, sequence number, kind, values)."""
        if len(rows) == 1 and not lone:
            return rows[0][1:]
        rows = sorted(rows, key=lambda row: row[1])
        tagged = [(kind, {**values, "#": sequence}) for _, sequence, kind, values in rows]
        ordered = in_order(tagged, self.engine.sequence, descending=self.engine.descending)
        kind, values = self.engine.fold([(k, self._plain(v)) for k, v in ordered])
        last = ordered[0 if self.first_row else -1]
        return last[1]["#"], kind, values

    def _plain(self, values):
        return {name: value for name, value in values.items() if name != "#"}

    def told(self, before, after):
        """The table of §C.2; both are (kind, values) or None."""
        before = before if before is not None and before[0] in ADDS else None
        after = after if after is not None and after[0] in ADDS else None
        if before is None:
            return [] if after is None else [("+I", after[1])]
        if after is None:
            return [("-D", before[1])]
        if self._same(before[1], after[1]):
            return []
        return [("-U", before[1]), ("+U", after[1])]

    def _same(self, before, after):
        if "changelog-producer.row-deduplicate" not in self.options:
            return False
        ignored = self.options.get("changelog-producer.row-deduplicate-ignore-fields")
        return all(before[name] == after[name] for name in before if name != ignored)

    def key(self, rows, above, unit, *, has_level_0):
        """One key of one rewritten group.

        Args:
            rows: (level, sequence number, kind, values).
            above: the row looked up, with where it is: (row, place), or None.
            has_level_0: whether the group has a file of level 0.

        Returns:
            Result or None, changes, and whether the row above is marked.
        """
        if self.producer == "full-compaction" and unit.output_level == unit.max_level:
            top = next((row for row in rows if row[0] == unit.max_level), None)
            after = self.merged(rows, lone=False)
            if top is not None and len(rows) == 1:
                return after, [], False
            return after, self.told(top and top[2:], after[1:]), False
        young = [row for row in rows if row[0] == 0]
        upper = sorted((row for row in rows if row[0] > 0), key=lambda row: row[0])
        if not (self.needs_lookup and has_level_0):
            summing = self.engine.engine in ("partial-update", "aggregation")
            counting = upper[:1] if self.needs_lookup and summing else upper
            return self.merged([*young, *counting], lone=False), [], False
        if self.first_row:
            after = self.merged(rows, lone=True)
            if upper:
                return after, [], False
            if above is not None:
                return None, [], False
            return after, [after[1:]] if self.producer == "lookup" else [], False
        before = upper[0] if upper else None
        marks = False
        if young and before is None and above is not None:
            marks = self.vectors
            before = None if self.by_position else (99, *above)
        after = self.merged([*young, *([] if before is None else [before])], lone=True)
        changes = []
        if young and self.producer == "lookup":
            changes = self.told(before and before[2:], after[1:])
        return after, changes, marks


def compact_and_compare(bucket, model, output):
    levels = bucket.levels
    runs = [run for run in levels.runs() if run.level <= output]
    unit = CompactUnit(
        files=tuple(file for run in runs for file in run.files),
        output_level=output,
        max_level=levels.max_level,
        drop_deletes=model.vectors or output >= levels.highest_non_empty_level,
    )
    context = bucket.context
    plan = plan_unit(unit, context.key_of, small_file_bytes=1 << 20)
    above = {}
    for run in levels.upper:
        if run is not None and run.level > output:
            for file in run.files:
                for key, *row in bucket.rows(file):
                    above.setdefault(key, row)
    expected_rows, expected_changes, expected_marks = {}, {}, []
    groups = [
        ([file for section in group for run in section for file in run.files], False)
        for group in plan.rewrites
    ]
    groups += [([file], True) for file in plan.upgrades]
    for files, moves in groups:
        by_key = {}
        for file in files:
            for key, *row in bucket.rows(file):
                by_key.setdefault(key, []).append((file.level, *row))
        for key, rows in by_key.items():
            has_level_0 = any(file.level == 0 for file in files)
            after, changes, marks = model.key(rows, above.get(key), unit, has_level_0=has_level_0)
            drops = model.vectors if moves else unit.drop_deletes
            if after is not None and not (drops and after[1] not in ADDS):
                expected_rows[key] = after
            expected_changes[key] = changes
            if marks:
                expected_marks.append(key)
    before = {file.file_name: bucket.rows(file) for file in unit.files}
    bucket.marked.marks.clear()
    increment = bucket.compact(unit, window_bytes=random.choice((1, 1 << 20)))
    moved = {f.file_name for f in increment.compact_before} & {
        f.file_name for f in increment.compact_after
    }
    for name in moved:  # files that stay as they are hold what they held
        for key, *row in before[name]:
            expected_rows[key] = tuple(row)
    found = {}
    for file in increment.compact_after:
        assert file.level == output
        for key, sequence, kind, values in bucket.rows(file):
            assert key not in found
            found[key] = (sequence, kind, values)
    assert found == expected_rows
    changes = bucket.changes(increment)
    assert changes == [c for key in sorted(expected_changes) for c in expected_changes[key]]
    for file in increment.changelog_files:
        assert (file.level, file.file_source) == (output, 0)
        assert file.file_name.startswith("changelog-")
    places = {
        (file.file_name, position): row["k"]
        for file in levels.files()
        if file.level > output
        for position, row in enumerate(bucket.stored(file).to_pylist())
    }
    assert sorted(places[mark] for mark in bucket.marked.marks) == sorted(expected_marks)
    gone = {file.file_name for file in increment.compact_before} - moved
    assert not gone & set(bucket.marked.vectors)
    return changes


def _row(random_, key):
    return {
        "k": key,
        "a": random_.choice([None, *range(-3, 4)]),
        "g": random_.choice([None, 0, 1, 2, 3]),
        "s": random_.choice([None, "x", "y"]),
    }


def _scenario(tmp_path, options, kinds, seed, *, copies=False):
    random_ = random.Random(seed)
    model = Model(options)
    bucket = Bucket(tmp_path / "table", schema_of(COLUMNS, options))
    if copies:
        lookup = BucketLookup(bucket.context, LookupStore(tmp_path / "copies"))
        with_lookup_of(bucket, lookup)
    last = bucket.levels.max_level
    for _ in range(5):
        for _ in range(random_.randint(1, 2)):
            low = random_.randint(0, 8)
            keys = [random_.randint(low, low + 6) for _ in range(random_.randint(1, 6))]
            bucket.flush([(random_.choice(kinds), _row(random_, key)) for key in keys])
        output = random_.choice([1, 2, 2, 3, 4, last])
        compact_and_compare(bucket, model, output)


MAIN = ("deduplicate", "partial-update", "sequence groups, sum", "sum removing")
TRIED = [
    (engine, way)
    for engine in ENGINES
    for way in WAYS
    if engine in MAIN or way in ("lookup", "vectors and lookup")
]


@pytest.mark.parametrize(("engine", "way"), TRIED)
def test_every_key_becomes_what_the_model_says(tmp_path, engine, way):
    options, kinds = ENGINES[engine]
    try:
        _scenario(tmp_path, options | WAYS[way], kinds, f"{engine} {way}")
    except (UnsupportedRetraction, InvalidRequestError):
        assert engine == "partial-update with deletes"


@pytest.mark.parametrize("way", ["none", "lookup"])
def test_first_row_keeps_the_first(tmp_path, way):
    _scenario(tmp_path, {"merge-engine": "first-row"} | WAYS[way], ADDS, f"first-row {way}")


@pytest.mark.parametrize("way", ["lookup", "vectors", "vectors and lookup"])
@pytest.mark.parametrize("engine", ["deduplicate", "sum removing"])
def test_local_copies_answer_the_same(tmp_path, engine, way):
    options, kinds = ENGINES[engine]
    _scenario(tmp_path, options | WAYS[way], kinds, f"{engine} {way} copies", copies=True)


def test_local_copies_know_first_rows(tmp_path):
    options = {"merge-engine": "first-row"} | LOOKUP
    _scenario(tmp_path, options, ADDS, "first-row copies", copies=True)
