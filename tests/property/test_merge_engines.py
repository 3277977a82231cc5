# SPDX-License-Identifier: Apache-2.0
"""The merge engines against the row-by-row model: in one merge, and under any compactions."""

import pathlib
import tempfile
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import InvalidRequestError
from storage.format.files.data_file import key_value_schema
from storage.format.metadata.schema import TableSchema, new_schema
from storage.lsm.merge import merge_rows
from storage.lsm.merge_functions import merge_function_for
from storage.options.options import TableOptions
from tests.property.bucket_table import BucketTable
from tests.property.merge_model import Change, Engine, UnsupportedRetraction, in_order
from tests.property.model import KINDS
from tests.property.profiles import profile
from tests.property.strategies import BIGINT, INT, STRING, input_batch, table_options

_COLUMNS = ("k", "a", "g", "b", "s", "h", "c")
_TYPES = (INT, BIGINT, INT, BIGINT, STRING, INT, BIGINT)

_PARTIAL = {"merge-engine": "partial-update"}
_GROUPS = _PARTIAL | {"fields.g.sequence-group": "a,b", "fields.h,c.sequence-group": "s"}
_LISTED = "partial-update.remove-record-on-sequence-group"
_SUM_B = {"fields.b.aggregate-function": "sum"}
_AGGREGATION = {
    "merge-engine": "aggregation",
    "fields.a.aggregate-function": "sum",
    "fields.b.aggregate-function": "last_value",
    "fields.c.aggregate-function": "sum",
    "fields.g.aggregate-function": "last_value",
}
_ADD_ONLY = _AGGREGATION | {
    "fields.b.aggregate-function": "max",
    "fields.c.aggregate-function": "first_value",
    "fields.g.aggregate-function": "first_non_null_value",
    "fields.s.aggregate-function": "listagg",
    "fields.h.aggregate-function": "min",
}
_COMMUTING = {
    "merge-engine": "aggregation",
    "fields.a.aggregate-function": "sum",
    "fields.c.aggregate-function": "sum",
    "fields.default-aggregate-function": "max",
}
_IGNORING = {f"fields.{name}.ignore-retract": "true" for name in "bcgsh"}

_ONE_MERGE: tuple[dict[str, str], ...] = (
    {},
    {"sequence.field": "g"},
    {"sequence.field": "g,h", "sequence.field.sort-order": "descending"},
    {"merge-engine": "first-row"},
    _PARTIAL,
    _PARTIAL | {"sequence.field": "g"},
    _PARTIAL | {"partial-update.remove-record-on-delete": "true"},
    _GROUPS,
    _GROUPS | _SUM_B,
    _GROUPS | _SUM_B | {"fields.a.aggregate-function": "last_non_null_value"},
    _GROUPS | {"fields.a.aggregate-function": "last_value", _LISTED: "g"},
    _GROUPS | _SUM_B | {_LISTED: "g"},
    _GROUPS | {_LISTED: "g,h"},
    _GROUPS | {"fields.b.aggregate-function": "max", "fields.s.aggregate-function": "listagg"},
    _GROUPS | {"fields.b.aggregate-function": "first_value", "fields.b.ignore-retract": "true"},
    _GROUPS | {"fields.default-aggregate-function": "last_non_null_value"},
    _GROUPS
    | {
        "fields.a.aggregate-function": "first_value",
        "fields.a.ignore-retract": "true",
        _LISTED: "g,h",
    },
    _GROUPS
    | {
        "sequence.field": "b",
        "fields.s.aggregate-function": "listagg",
        "fields.s.ignore-retract": "true",
    },
    _AGGREGATION,
    _AGGREGATION | {"sequence.field": "h,g"} | {"fields.g.aggregate-function": ""},
    _AGGREGATION | {"aggregation.remove-record-on-delete": "true"},
    _ADD_ONLY,
    _ADD_ONLY | _IGNORING,
    _AGGREGATION
    | {"aggregation.remove-record-on-delete": "true"}
    | {
        "fields.c.aggregate-function": "first_value",
        "fields.g.aggregate-function": "first_non_null_value",
    },
)


def _schema(options: dict[str, str]) -> TableSchema:
    given_options = {key: value for key, value in options.items() if value}
    return new_schema(
        list(zip(_COLUMNS, _TYPES, strict=True)),
        primary_keys=["k"],
        partition_keys=(),
        options={"bucket": "1", **given_options},
        now_ms=0,
    )


def _changes(max_size: int, kinds: tuple[str, ...]) -> st.SearchStrategy[list[Change]]:
    small = st.none() | st.integers(0, 3)
    number = st.none() | st.integers(-9, 9)
    text = st.none() | st.sampled_from(["x", "y", "z"])
    values = st.fixed_dictionaries(
        {
            "k": st.integers(0, 3),
            "a": number,
            "g": small,
            "b": number,
            "s": text,
            "h": small,
            "c": number,
        }
    )
    return st.lists(st.tuples(st.sampled_from(kinds), values), max_size=max_size)


def _batch(changes: list[Change], schema: TableSchema) -> pa.RecordBatch:
    arrow_schema = key_value_schema(schema)
    arrays = [
        pa.array(range(len(changes)), pa.int64()),
        pa.array([KINDS.index(kind) for kind, _ in changes], pa.int8()),
    ]
    arrays.extend(
        pa.array([values[name] for _, values in changes], arrow_schema.field(name).type)
        for name in _COLUMNS
    )
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema)


def _by_key(changes: list[Change]) -> dict[int, list[Change]]:
    found: dict[int, list[Change]] = {}
    for change in changes:
        found.setdefault(change[1]["k"], []).append(change)
    return found


def _expected(changes: list[Change], options: dict[str, str]) -> list[Change]:
    engine = Engine(_COLUMNS, ["k"], {key: value for key, value in options.items() if value})
    found = []
    for _, rows in sorted(_by_key(changes).items()):
        ordered = in_order(rows, engine.sequence, descending=engine.descending)
        found.append(engine.merge(ordered))
    return found


@given(
    st.sampled_from(_ONE_MERGE),
    _changes(24, ("+I", "+U", "+I", "+U", "-U", "-D")) | _changes(24, ("+I", "+U")),
)
@profile(short=20)
def test_one_merge_equals_the_model(options: dict[str, str], changes: list[Change]) -> None:
    schema = _schema(options)
    function = merge_function_for(TableOptions.from_strings(schema.options), schema)
    batch = _batch(changes, schema)
    try:
        expected = _expected(changes, options)
    except UnsupportedRetraction:
        with pytest.raises(InvalidRequestError, match="key=`k="):
            merge_rows([batch], ["k"], function)
        return
    merged = merge_rows([batch], ["k"], function)
    found: list[Any] = merged.drop_columns(["_SEQUENCE_NUMBER"]).to_pylist()
    assert found == [{"_VALUE_KIND": KINDS.index(kind), **row} for kind, row in expected]


_ANY_SCHEDULE: tuple[tuple[dict[str, str], tuple[str, ...]], ...] = (
    ({"sequence.field": "g"}, ("+I", "+U")),
    ({"sequence.field": "g,h", "sequence.field.sort-order": "descending"}, ("+I",)),
    (_PARTIAL, ("+I", "+U")),
    (_GROUPS, ("+I",)),
    (_GROUPS | _SUM_B, ("+I",)),
    (_ADD_ONLY, ("+I", "+U")),
    (_COMMUTING | {"sequence.field": "h"}, ("+I",)),
)
"""Options, and kinds of rows, for which no compaction may show."""


@given(st.data())
@profile(short=20)
def test_no_schedule_of_flushes_and_compactions_shows(data: st.DataObject) -> None:
    options, kinds = data.draw(st.sampled_from(_ANY_SCHEDULE))
    schema = _schema(data.draw(table_options()) | options)
    written: list[Change] = []
    with tempfile.TemporaryDirectory() as root:
        table = BucketTable(pathlib.Path(root), schema)
        for _ in range(data.draw(st.integers(1, 6))):
            changes = data.draw(_changes(8, kinds))
            rows = [(kind, tuple(values[name] for name in _COLUMNS)) for kind, values in changes]
            table.writer.write(input_batch(rows, schema))
            written += changes
            step = data.draw(st.sampled_from(["flush", "commit", "compact", "full"]))
            if step == "flush":
                table.writer.flush()
            elif step != "commit":
                table.writer.compact(full=step == "full")
            if step == "commit":
                table.commit()
        table.commit()
        found = table.scan()
    expected = [row for kind, row in _expected(written, options) if kind in ("+I", "+U")]
    assert found == [tuple(row[name] for name in _COLUMNS) for row in expected]
