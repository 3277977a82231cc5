# SPDX-License-Identifier: Apache-2.0
"""The driver's book: which tables it opens, what it does with shapes they do not cover."""

import json

import pytest

from ingest.decode.events import ObservedField, SchemaDelta, SourceTable
from ingest.state.table_registry import TableRegistry
from storage.clock import ManualClock
from storage.format.metadata.schema_changes import AddColumn
from storage.format.types.types import AtomicType, TypeRoot
from tests.unit.ingest.lake_settings import lake_settings

BIGINT = AtomicType(TypeRoot.BIGINT)
STRING = AtomicType(TypeRoot.VARCHAR, length=2_147_483_647)


@pytest.fixture
def settings(tmp_path):
    return lake_settings(tmp_path)


def delta(target, **columns):
    database, table = target.split(".")
    return SchemaDelta(
        target=target,
        source=SourceTable(database, "inventory", table),
        topic=f"{database}.inventory.{table}",
        fields=tuple(ObservedField(name, type_) for name, type_ in columns.items()),
        primary_key=("id",),
        offset=0,
    )


def opened(settings):
    book = TableRegistry(settings, ManualClock())
    book.load()
    return book


def test_a_missing_table_is_created_once_and_the_next_process_finds_it(settings):
    book = opened(settings)
    first = book.schemas.apply([delta("shop.items", id=BIGINT, name=STRING)], now_ms=0)
    again = book.schemas.apply([delta("shop.items", id=BIGINT, name=STRING)], now_ms=0)
    assert (first.applied, first.refused) == ((("shop.items", "create table"),), {})
    assert (again.applied, again.refused) == ((), {})
    assert opened(settings).schema_ids() == {"lakeward._quarantine": 0, "shop.items": 0}


def test_schemas_that_others_changed_are_noticed_in_turns_within_a_minute(settings):
    clock = ManualClock()
    book = TableRegistry(settings, clock)
    book.load()
    names = [f"shop.t{number}" for number in range(11)]
    book.schemas.apply([delta(name, id=BIGINT) for name in names], now_ms=0)
    for _ in range(2):
        before = book.schema_ids()
        other = opened(settings)
        for name in names:
            other.table(name).alter([AddColumn(f"c{before[name]}", STRING)])
        noticed = []
        for _ in range(4):
            clock.advance(15_000)
            book.refresh()
            noticed.append(sum(book.schema_ids()[name] > before[name] for name in names))
        assert noticed[-1] == len(names)
        assert 0 < noticed[0] < 6


def test_a_column_that_fits_no_allowed_change_is_refused_and_the_others_are_added(settings):
    book = opened(settings)
    book.schemas.apply([delta("shop.items", id=BIGINT, name=STRING)], now_ms=0)
    changes = book.schemas.apply([delta("shop.items", name=BIGINT, more=BIGINT)], now_ms=0)
    [(name, why)] = changes.refused.items()
    assert name == "shop.items"
    assert "column name" in why
    assert book.table("shop.items").schema.field_names == ("id", "name", "more")


def test_a_table_with_a_type_we_do_not_know_stops_nobody_else(settings, tmp_path):
    book = opened(settings)
    book.schemas.apply([delta("shop.items", id=BIGINT), delta("shop.odd", id=BIGINT)], now_ms=0)
    schema = tmp_path / "lake/shop.db/odd/schema/schema-0"
    raw = json.loads(schema.read_text())
    raw["fields"].append({"id": 9, "name": "v", "type": "VARIANT"})
    schema.write_text(json.dumps(raw))

    book = opened(settings)

    assert set(book.schema_ids()) == {"lakeward._quarantine", "shop.items"}
    changes = book.schemas.apply([delta("shop.odd", id=BIGINT)], now_ms=0)
    assert (changes.applied, set(changes.refused)) == ((), {"shop.odd"})
    assert "VARIANT" in changes.refused["shop.odd"]


def test_who_asks_while_a_batch_makes_tables_is_answered(settings):
    book = opened(settings)
    made = []

    class Page:
        @property
        def progress(self):
            made.append(book._entries.setdefault(f"new.t{len(made)}", Page()))

    book._entries["shop.t"] = Page()
    assert book.progresses() == {}
    assert made


def test_a_name_that_cannot_be_a_table_is_refused(settings):
    book = opened(settings)
    odd = delta("shop.items", id=BIGINT)
    changes = book.schemas.apply([SchemaDelta(**{**_parts(odd), "target": "shop.a$b"})], now_ms=0)
    assert set(changes.refused) == {"shop.a$b"}
    assert "$" in changes.refused["shop.a$b"]


def _parts(value):
    return {name: getattr(value, name) for name in value.__dataclass_fields__}
