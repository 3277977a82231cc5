# SPDX-License-Identifier: Apache-2.0
import pytest

from ingest.configuration.settings import load_settings
from ingest.formats.events import SourceTable
from ingest.microbatch.routing import Destination, Route, Routing, Shard
from storage.errors import InvalidOptionError

CUSTOMERS = SourceTable("inventory", "", "customers", "shop")
INVENTORY = Route(source_table="shop.inventory.(.*)", sink_table="ods.inv_$1")
SHARDS = Route(
    source_table=r"shop\.orders_[0-9]+\.orders",
    sink_table="ods.orders",
    shard=Shard(column="_shard", value="${source.db}"),
)


def shard(number):
    return SourceTable(f"orders_{number}", "", "orders", "shop")


def test_without_rules_a_table_keeps_its_database_and_name():
    routing = Routing()
    assert routing.destination(CUSTOMERS) == Destination("inventory.customers")
    assert routing.destination(SourceTable("", "public", "t")) == Destination("public.t")
    assert routing.destination(SourceTable("", "", "t")) == Destination("lakeward.t")


def test_the_first_rule_that_fits_wins_and_the_rest_is_left_out():
    everything = Route(source_table=r"shop\.(\w+)\.(\w+)", sink_table="$1.$2")
    routing = Routing((INVENTORY, everything))
    assert routing.destination(CUSTOMERS) == Destination("ods.inv_customers")
    assert routing.destination(SourceTable("crm", "", "people", "shop")).table == "crm.people"
    assert routing.destination(SourceTable("crm", "", "people", "other")) is None


def test_an_address_may_leave_the_server_out_and_must_match_whole():
    route = Route(source_table="inventory.customers", sink_table="people")
    routing = Routing((route,), default_database="ods")
    assert routing.destination(CUSTOMERS).table == "ods.people"
    assert routing.destination(SourceTable("inventory", "", "customers_old", "shop")) is None


@pytest.mark.parametrize(
    ("template", "table"),
    [
        ("ods.<>", "ods.customers"),
        ("${source.db}_raw.${source.table}", "inventory_raw.customers"),
        ("ods.${source.server}_${source.schema}_$1", "ods.shop__customers"),
    ],
)
def test_names_of_targets_take_parts_of_the_address(template, table):
    route = Route(source_table=r"shop\.inventory\.(.*)", sink_table=template)
    assert Routing((route,)).destination(CUSTOMERS).table == table


def test_shards_share_a_table_and_each_has_its_value():
    routing = Routing((SHARDS,))
    one, two = routing.destination(shard(1)), routing.destination(shard(2))
    assert (one.table, one.constants) == ("ods.orders", (("_shard", "orders_1"),))
    assert (two.table, two.constants) == ("ods.orders", (("_shard", "orders_2"),))
    assert one.owner == two.owner != ""
    assert one.key_prefix == ("_shard",)


@pytest.mark.parametrize(
    ("pattern", "sink"),
    [
        (r"shop\.orders_[0-9]+\.orders", "ods.orders"),
        (r"shop\.(a|b)\.(t.*)", "ods.$2"),
        ("shop.*", "ods.everything"),
        (r"shop\.db_\d+\.t", "ods.<>"),
        (r"(.*)\.t", "ods.t"),
    ],
)
def test_tables_that_may_come_together_need_a_word_about_their_keys(pattern, sink):
    with pytest.raises(InvalidOptionError, match="overwrite each other") as caught:
        Routing((Route(source_table=pattern, sink_table=sink),)).check()
    assert "shard" in caught.value.hint
    stated = Route(source_table=pattern, sink_table=sink, keys_are_unique=True)
    Routing((stated,)).check()


@pytest.mark.parametrize(
    ("pattern", "sink"),
    [
        ("shop.inventory.customers", "ods.customers"),
        (r"shop\.inventory\.customers", "ods.customers"),
        (r"shop\.(a|b)\.(t.*)", "$1.$2"),
        (r"shop\.inventory\.\w+", "ods.<>"),
        (r"shop\.[a-z]+\.\w+", "${source.db}.${source.table}"),
    ],
)
def test_rules_that_keep_tables_apart_are_taken(pattern, sink):
    Routing((Route(source_table=pattern, sink_table=sink),)).check()


@pytest.mark.parametrize(
    ("route", "message", "key"),
    [
        (Route(source_table="shop.(", sink_table="a.b"), "regular expression", "source-table"),
        (Route(source_table="shop.(.*)", sink_table="a.$2"), "no group", "sink-table"),
        (Route(source_table="shop.(.*)", sink_table="a.${source.tabel}"), "unknown", "sink-table"),
        (
            Route(source_table="a.*", sink_table="b.c", shard=Shard(column="s", value="same")),
            "same for every",
            "shard.value",
        ),
    ],
)
def test_malformed_rules_are_refused_by_name(route, message, key):
    with pytest.raises(InvalidOptionError, match=message) as caught:
        Routing((INVENTORY, route)).check()
    assert f"route[1].{key}" in str(caught.value)


BASE = "source: {type: files, path: /events}\nsink: {warehouse: /lake}\npipeline: {name: shop}\n"


@pytest.fixture
def load(tmp_path):
    def read(text):
        path = tmp_path / "shop.yaml"
        path.write_text(BASE + text)
        return load_settings(path, environ={})

    return read


def test_rules_come_from_the_configuration_and_survive_json(load):
    settings = load(
        "route:\n"
        "  - {source-table: shop.inventory.(.*), sink-table: ods.inv_$1}\n"
        "  - source-table: shop\\.orders_[0-9]+\\.orders\n"
        "    sink-table: ods.orders\n"
        "    shard: {column: _shard, value: '${source.db}'}\n"
    )
    assert settings.routes == (INVENTORY, SHARDS)
    assert type(settings).from_json(settings.to_json()) == settings


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("route: {a: b}", "must be a list"),
        ("route: [{sink-table: a.b}]", "needs `source-table`"),
        ("route: [{source-table: a, sink-tabel: b}]", "did you mean `sink-table`"),
        ("route: [{source-table: a, sink-table: b, shard: {value: x}}]", "needs a column"),
        (
            "route: [{source-table: a, sink-table: b, shard: {column: s, in.primary.key: false}}]",
            "overwrite each other",
        ),
        ("route: [{source-table: shop.*, sink-table: a.b}]", "overwrite each other"),
    ],
)
def test_mistakes_in_the_configuration_are_told(load, text, message):
    with pytest.raises(InvalidOptionError) as caught:
        load(text)
    assert message in f"{caught.value} {caught.value.hint}"
