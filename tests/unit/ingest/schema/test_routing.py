# SPDX-License-Identifier: Apache-2.0
import pytest

from ingest.config.settings import Route, Shard
from ingest.daemon.configuration import load_settings
from ingest.decode.events import SourceTable
from ingest.schema.routing import Destination, Routing
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


OWN = (("lakeward._quarantine", "quarantine"), ("ops.bad", "history of schema changes"))
REST = Route(source_table="(?s).*", sink_table="${source.db}.<>")


@pytest.mark.parametrize(
    ("database", "table"),
    [
        ("lakeward", "_quarantine"),
        ("LakeWard", "_QUARANTINE"),
        ("", "_quarantine"),
        ("ops", "bad"),
    ],
)
@pytest.mark.parametrize("routes", [(), (REST,)])
def test_no_source_table_becomes_one_of_our_own(database, table, routes):
    source = SourceTable(database, "", table, "srv")
    if routes and not database:
        routes = (Route(source_table=".*", sink_table="<>"),)
    for sanitize in (False, True):
        routing = Routing(routes, own_tables=OWN, sanitize=sanitize)
        place = routing.destination(source)
        assert place.is_own_table
        assert f"send source table {source.address} to another table" in place.refusal
        assert routing.writable_destination(source) is None
    elsewhere = Route(source_table=source.address.replace(".", r"\."), sink_table="ods.theirs")
    routed = Routing((elsewhere, *routes), own_tables=OWN).writable_destination(source)
    assert (routed.table, routed.is_own_table) == ("ods.theirs", False)


def test_names_beside_our_own_are_anybodys():
    for database, table in (("lakeward", "lakeward"), ("_quarantine", "t"), ("ops", "_bad")):
        place = Routing(own_tables=OWN).writable_destination(SourceTable(database, "", table))
        assert place == Destination(f"{database}.{table}")


@pytest.mark.parametrize(
    ("database", "table", "replaced"),
    [
        ("shop", "SYS$AUDIT", "shop.SYS_AUDIT"),
        ("shop", "my.dotted.table", "shop.my_dotted_table"),
        ("a.db", "t", "a_db.t"),
        ("shop", "  t ", "shop.__t_"),
        ("shop", "a/b\\c:d\n", "shop.a_b_c_d_"),
        ("sys", "t", "sys_.t"),
        (".", "..", "_.__"),
        ("shop", "", "shop._"),
        ("shop", "   ", "shop.___"),
    ],
)
def test_forbidden_names_are_refused_or_replaced(database, table, replaced):
    source = SourceTable(database, "", table, "srv")
    for routes in ((), (REST,)):
        refused = Routing(routes).destination(source)
        assert "`sink.names.sanitize: true`" in refused.refusal
        assert "`route`" in refused.refusal
        assert not refused.is_own_table
        assert Routing(routes).writable_destination(source) is None
        place = Routing(routes, sanitize=True).writable_destination(source)
        assert (place.table, place.original_name) == (replaced, f"{database}.{table}")


def test_names_that_are_too_long_for_file_systems_are_cut_and_stay_apart():
    longs = ["x" * 300, "x" * 299 + "y", "\N{SNOWMAN}" * 100, "fits" * 60]
    tables = [
        Routing(sanitize=True)
        .writable_destination(SourceTable("shop", "", name))
        .table.partition(".")[2]
        for name in longs
    ]
    assert len(set(tables)) == 4
    assert [len(name.encode()) for name in tables[:2]] == [200, 200]
    assert all(len(name.encode()) <= 255 for name in tables)
    assert tables[3] == longs[3], "a name that the format allows stays"
    (again,) = {
        Routing(sanitize=True).writable_destination(SourceTable("shop", "", longs[0])).table
    }
    assert again == f"shop.{tables[0]}", "the same each time"


def test_groups_of_a_rule_may_bring_the_dot_between_database_and_table():
    route = Route(source_table=r"srv\.(.*)", sink_table="$1", keys_are_unique=True)
    source = SourceTable("shop", "", "a$b.c", "srv")
    assert Routing((route,), sanitize=True).writable_destination(source).table == "shop.a_b_c"


@pytest.mark.parametrize(
    ("sink", "message"),
    [
        ("lakeward._quarantine", "Lakeward's own"),
        ("LAKEWARD._Quarantine", "Lakeward's own"),
        ("_quarantine", "Lakeward's own"),
        ("ops.bad", "history of schema changes"),
        ("ods.SYS$AUDIT", "not allowed"),
        ("ods.a.b", "not allowed"),
        ("sys.t", "not allowed"),
    ],
)
def test_rules_that_name_a_table_that_cannot_be_written_are_refused(sink, message):
    route = Route(source_table="shop.a.b", sink_table=sink)
    with pytest.raises(InvalidOptionError, match=message) as caught:
        Routing((INVENTORY, route), own_tables=OWN).check()
    assert "route[1].sink-table" in str(caught.value)


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
        ("route: [{sink-table: a.b}]", "requires `source-table`"),
        ("route: [{source-table: a, sink-tabel: b}]", "did you mean `sink-table`"),
        ("route: [{source-table: a, sink-table: b, shard: {value: x}}]", "requires a column"),
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
