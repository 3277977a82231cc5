# SPDX-License-Identifier: Apache-2.0
"""Every type of CDC.md §1.6 gives one column and one value, whichever way it is decoded."""

import pytest

from ingest.decode.events import ObservedField
from storage.format.metadata.schema import new_schema
from storage.format.types.types import parse_type, type_name
from tests.unit.ingest.debezium_events import connect_field
from tests.unit.ingest.every_type import EVERY_TYPE, TypeCase
from tests.unit.ingest.every_way import BARE, EveryWay, stored

ID = connect_field("id", "int64")
BY_LABEL = [pytest.param(case, id=case.label) for case in EVERY_TYPE]
BY_VALUE = ("double, infinite",)
"""JSON has no number for it, and its text is for the reference path."""


def table(case: TypeCase):
    columns = [("id", parse_type("BIGINT")), ("v", parse_type(case.column))]
    return new_schema(columns, primary_keys=("id",), options={}, now_ms=0)


def rows(case: TypeCase):
    return [{"id": n, "v": value} for n, value in enumerate([case.value, None, case.value])]


@pytest.mark.parametrize("case", BY_LABEL)
def test_the_column_it_makes(case):
    events = EveryWay([ID, case.field], rows(case), None)
    (delta,) = events.block().deltas
    found = delta.fields[1]
    assert found == ObservedField("v", parse_type(case.column)), type_name(found.type)


@pytest.mark.parametrize("case", BY_LABEL)
def test_the_value_it_stores_in_every_encoding_on_both_paths(case):
    events = EveryWay([ID, case.field], rows(case), table(case))
    results = events.all(strictly=case.label not in BY_VALUE, bare=False)
    if case.bare is not None:
        bare = dict(case.bare)
        mapping = bare.pop("type_mapping", ())
        more = EveryWay([ID, case.field], rows(case), table(case), mapping=mapping, **bare)
        results |= {name: result for name, result in more.all().items() if name in BARE}
    for name, result in results.items():
        assert [(b.error_class, b.error) for b in result.bad] == [], name
        assert stored(result) == [case.stored, None, case.stored], name
        assert result.counts == {"op.c": 3}


def test_no_type_is_forgotten():
    """The names of CDC.md's table."""
    names = {case.field.get("name", "").rpartition(".")[2] for case in EVERY_TYPE}
    wanted = (
        "Decimal VariableScaleDecimal Date Time MicroTime NanoTime Timestamp MicroTimestamp "
        "NanoTimestamp ZonedTimestamp ZonedTime IsoDate IsoTime IsoTimestamp StructuredDate "
        "StructuredTime StructuredTimestamp StructuredZonedTime StructuredZonedTimestamp "
        "StructuredDuration Year MicroDuration NanoDuration Interval Bits Enum EnumSet Json Xml "
        "Uuid Ltree Tsvector Geometry Geography Point Circle Line FloatVector DoubleVector "
        "SparseDoubleVector"
    )
    assert set(wanted.split()) <= names
