# SPDX-License-Identifier: Apache-2.0
"""What holds for catalogs of every kind; kinds differ in `Kind`."""

import concurrent.futures
import dataclasses
import pathlib
import pickle
import uuid

import pytest

from storage.catalog.catalog import Catalog
from storage.catalog.view import View
from storage.errors import (
    InvalidOptionError,
    InvalidRequestError,
    InvalidSchemaChangeError,
    NotFoundError,
    UnsupportedFeatureError,
)
from storage.format.metadata.schema import TableSchema, new_schema
from storage.format.metadata.schema_changes import AddColumn, DropColumn, RenameColumn, SetOption
from storage.format.types.types import DataField, parse_type
from tests.table_kit import rows_of, write
from tests.unit.storage.catalog.kinds import LOCAL, SERVED, WITHOUT_VIEWS, catalog_options

INT = parse_type("INT")
VIEW = View(
    fields=(DataField(id=0, name="k", type=INT), DataField(id=1, name="t", type=INT)),
    query="select k, sum(v) total from t group by k",
    dialects={"spark": "select k, sum(v) as total from t group by k"},
    comment="totals",
    options={"owner": "them"},
)


def schema(**options: str) -> TableSchema:
    columns = [("k", INT), ("v", INT)]
    return new_schema(columns, primary_keys=["k"], options={"bucket": "1", **options})


@pytest.fixture(
    scope="module",
    params=[*LOCAL, *(pytest.param(kind, marks=pytest.mark.full) for kind in SERVED)],
)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def options(kind, tmp_path_factory):
    with catalog_options(kind, tmp_path_factory.mktemp(kind)) as found:
        yield found


@pytest.fixture
def keeps_views(kind):
    return kind not in WITHOUT_VIEWS


@pytest.fixture
def opened(options, tmp_path):
    """Opens the same catalog anew; every test has one of its own."""
    key = {"catalog-key": uuid.uuid4().hex} if options.get("metastore") == "jdbc" else {}

    def open_catalog(**more: str) -> Catalog:
        return Catalog.open(str(tmp_path / "w"), {**options, **key, **more})

    yield open_catalog
    if not key:  # what a server keeps is shared by all tests
        left = open_catalog()
        for name in databases(left):
            left.drop_database(name, cascade=True)


@pytest.fixture
def catalog(opened):
    made = opened()
    made.create_database("db")
    return made


def databases(catalog: Catalog) -> list[str]:
    """All but the one that every Hive metastore has."""
    return [name for name in catalog.list_databases() if name != "default"]


# ---- databases


def test_databases_are_made_listed_and_dropped(catalog):
    catalog.create_database("a")
    assert databases(catalog) == ["a", "db"]
    with pytest.raises(InvalidRequestError, match="exists already"):
        catalog.create_database("a")
    catalog.create_database("a", ignore_if_exists=True)
    catalog.drop_database("a")
    assert databases(catalog) == ["db"]
    with pytest.raises(NotFoundError, match="no such database"):
        catalog.drop_database("a")
    catalog.drop_database("a", ignore_if_missing=True)
    with pytest.raises(NotFoundError, match="no such database"):
        catalog.database("a")


def test_a_database_with_tables_is_dropped_with_cascade_only(catalog):
    table = catalog.create_table("db.t", schema())
    with pytest.raises(InvalidRequestError, match="not empty"):
        catalog.drop_database("db")
    assert catalog.exists("db.t")
    catalog.drop_database("db", cascade=True)
    assert databases(catalog) == []
    assert not pathlib.Path(table.layout.root).exists()
    catalog.create_database("db")
    assert catalog.list_tables("db") == []


@pytest.mark.parametrize("name", ["", "a.b", "a$b", "sys", " a", "a/b", "a\n"])
def test_names_of_databases(catalog, name):
    with pytest.raises(InvalidRequestError):
        catalog.create_database(name)
    assert databases(catalog) == ["db"]


def test_properties_of_databases(catalog, keeps_views):
    if not keeps_views:  # as in Paimon, a filesystem catalog keeps none
        catalog.create_database("p", properties={"comment": "dropped", "owner": "dropped"})
        assert catalog.database("p").comment is None
        assert "owner" not in catalog.database("p").properties
        with pytest.raises(UnsupportedFeatureError, match="properties of databases"):
            catalog.alter_database("p", {"a": "1"})
        return
    catalog.create_database("p", properties={"owner": "x", "comment": "what for", "gone": "1"})
    found = catalog.database("p")
    assert (found.name, found.comment) == ("p", "what for")
    assert {"owner": "x", "gone": "1"}.items() <= found.properties.items()
    assert "exists" not in found.properties
    catalog.alter_database("p", {"owner": "y", "gone": None, "new": "2", "never": None})
    properties = catalog.database("p").properties
    assert properties["owner"] == "y"
    assert properties["new"] == "2"
    assert "gone" not in properties
    with pytest.raises(NotFoundError):
        catalog.alter_database("none", {"a": "1"})
    catalog.alter_database("none", {"a": "1"}, ignore_if_missing=True)


# ---- tables


def test_a_table_is_made_written_and_read_through_two_objects(catalog, opened):
    write(catalog.create_table("db.t", schema()), 1, [("+I", 1, 10)])
    other = opened()
    assert other.list_tables("db") == ["t"]
    assert other.exists("db.t")
    assert rows_of(other.table("db.t")) == [(1, 10)]
    assert other.newest_snapshot("db.t").id == 1
    write(other.table("db.t"), 2, [("+I", 2, 20)])
    assert rows_of(catalog.table("db.t")) == [(1, 10), (2, 20)]


def test_a_table_that_exists(catalog):
    catalog.create_table("db.t", schema())
    with pytest.raises(InvalidRequestError, match="exists already"):
        catalog.create_table("db.t", schema())
    again = catalog.create_table("db.t", schema(bucket="4"), ignore_if_exists=True)
    assert again.options.bucket == 1


def test_a_table_that_is_missing(catalog):
    for call in (catalog.table, catalog.drop_table, catalog.newest_snapshot):
        with pytest.raises(NotFoundError, match="no such table"):
            call("db.none")
    with pytest.raises(NotFoundError, match="no such table"):
        catalog.rename_table("db.none", "db.other")
    with pytest.raises(NotFoundError, match="no such table"):
        catalog.alter_table("db.none", [SetOption("bucket", "1")])
    catalog.drop_table("db.none", ignore_if_missing=True)
    catalog.rename_table("db.none", "db.other", ignore_if_missing=True)
    catalog.alter_table("db.none", [SetOption("bucket", "1")], ignore_if_missing=True)
    assert not catalog.exists("db.none")
    assert catalog.list_tables("none") == []


@pytest.mark.parametrize("name", ["t", "", "db.", "db.a$b", "db.a.b", "sys.t", "db.a\n"])
def test_names_of_tables(catalog, name):
    with pytest.raises(InvalidRequestError):
        catalog.create_table(name, schema())
    assert catalog.list_tables("db") == []


def test_a_bad_schema_makes_no_table(catalog):
    with pytest.raises(InvalidOptionError):
        catalog.create_table("db.t", schema(**{"write-buffer-size": "many"}))
    assert not catalog.exists("db.t")
    assert catalog.list_tables("db") == []


def test_options_that_the_catalog_gives_new_tables(opened):
    catalog = opened(**{"table-default.bucket": "3", "table-default.file.format": "orc"})
    catalog.create_database("db")
    columns = [("k", INT), ("v", INT)]
    made = catalog.create_table("db.t", new_schema(columns, primary_keys=["k"]))
    assert made.schema.options == {"bucket": "3", "file.format": "orc"}
    assert catalog.create_table("db.u", schema()).options.bucket == 1


def test_dropping_removes_the_files_and_frees_the_name(catalog):
    table = catalog.create_table("db.t", schema())
    write(table, 1, [("+I", 1, 10)])
    catalog.drop_table("db.t")
    assert not catalog.exists("db.t")
    assert not [p for p in pathlib.Path(table.layout.root).rglob("*") if p.is_file()]
    assert rows_of(catalog.create_table("db.t", schema())) == []


def test_renaming_moves_the_rows(catalog):
    write(catalog.create_table("db.t", schema()), 1, [("+I", 1, 10)])
    catalog.create_table("db.taken", schema())
    with pytest.raises(InvalidRequestError, match="exists already"):
        catalog.rename_table("db.t", "db.taken")
    assert rows_of(catalog.table("db.t")) == [(1, 10)]
    catalog.create_database("other")
    catalog.rename_table("db.t", "db.u")
    catalog.rename_table("db.u", "other.v")
    assert catalog.list_tables("db") == ["taken"]
    assert catalog.list_tables("other") == ["v"]
    table = catalog.table("other.v")
    write(table, 2, [("+I", 2, 20)])
    assert rows_of(table) == [(1, 10), (2, 20)]
    with pytest.raises(InvalidRequestError):
        catalog.rename_table("other.v", "other.v$x")


def test_altering_a_table(catalog, opened):
    table = catalog.create_table("db.t", schema())
    catalog.alter_table("db.t", [AddColumn("w", INT), SetOption("snapshot.num-retained.max", "70")])
    opened().table("db.t").alter([RenameColumn("w", "x")])  # the table's own method is the same
    found = opened().table("db.t").schema
    assert found.field_names == ("k", "v", "x")
    assert found.options["snapshot.num-retained.max"] == "70"
    with pytest.raises(InvalidSchemaChangeError):
        catalog.alter_table("db.t", [DropColumn("k")])
    assert table.latest().schema.id == 2


def test_branches(catalog):
    table = catalog.create_table("db.t", schema())
    write(table, 1, [("+I", 1, 10)])
    table.create_branch("dev")
    branch = catalog.table("db.t$branch_dev")
    write(branch, 2, [("+I", 2, 20)])
    assert rows_of(catalog.table("db.t$branch_dev")) == [(2, 20)]
    assert rows_of(catalog.table("db.t")) == [(1, 10)]
    with pytest.raises(NotFoundError):
        catalog.table("db.t$branch_none")


def test_tables_travel_to_other_processes(catalog):
    table = pickle.loads(pickle.dumps(catalog.create_table("db.t", schema())))
    write(table, 1, [("+I", 1, 10)])
    pickle.loads(pickle.dumps(table)).alter([AddColumn("w", INT)])
    assert catalog.table("db.t").schema.field_names == ("k", "v", "w")
    assert rows_of(catalog.table("db.t"))[0][:2] == (1, 10)


def _create(opened, number: int) -> bool:
    try:
        opened().create_table("db.t", schema(**{"lakeward.maker": str(number)}))
    except InvalidRequestError:
        return False
    return True


def test_of_several_makers_of_a_table_one_makes_it(catalog, opened):
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda number: _create(opened, number), range(8)))
    assert made.count(True) == 1
    assert catalog.table("db.t").schema.options["lakeward.maker"] == str(made.index(True))


def test_several_change_a_table_at_once(catalog, opened):
    catalog.create_table("db.t", schema())
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(
            pool.map(
                lambda number: opened().alter_table("db.t", [AddColumn(f"c{number}", INT)]),
                range(8),
            )
        )
    newest = catalog.table("db.t").schema
    assert sorted(newest.field_names) == sorted(["k", "v", *(f"c{number}" for number in range(8))])
    assert newest.id == 8
    assert len({field.id for field in newest.fields}) == 10


# ---- views


def test_views(catalog, opened, keeps_views):
    if not keeps_views:
        with pytest.raises(UnsupportedFeatureError, match="no views"):
            catalog.create_view("db.w", VIEW)
        assert catalog.list_views("db") == []
        with pytest.raises(NotFoundError):
            catalog.view("db.w")
        return
    catalog.create_view("db.w", VIEW)
    with pytest.raises(InvalidRequestError, match="exists"):
        catalog.create_view("db.w", VIEW)
    catalog.create_view("db.w", VIEW, ignore_if_exists=True)
    assert opened().list_views("db") == ["w"]
    assert opened().view("db.w") == VIEW
    assert catalog.list_tables("db") == []
    changed = dataclasses.replace(VIEW, comment=None, dialects={"flink": "x"}, options={})
    catalog.alter_view("db.w", changed)
    assert catalog.view("db.w") == changed
    catalog.create_view("db.x", VIEW)
    with pytest.raises(InvalidRequestError, match="exists"):
        catalog.rename_view("db.w", "db.x")
    catalog.rename_view("db.w", "db.y")
    assert catalog.list_views("db") == ["x", "y"]
    catalog.drop_view("db.y")
    for call in (catalog.view, catalog.drop_view):
        with pytest.raises(NotFoundError, match="no such view"):
            call("db.y")
    with pytest.raises(NotFoundError, match="no such view"):
        catalog.alter_view("db.y", VIEW)
    with pytest.raises(NotFoundError, match="no such view"):
        catalog.rename_view("db.y", "db.z")
    catalog.drop_view("db.y", ignore_if_missing=True)


def test_a_view_and_a_table_share_their_names(catalog, keeps_views):
    if not keeps_views:
        return
    catalog.create_table("db.t", schema())
    catalog.create_view("db.w", VIEW)
    with pytest.raises(InvalidRequestError, match="exists"):
        catalog.create_view("db.t", VIEW)
    with pytest.raises(InvalidRequestError, match="exists"):
        catalog.create_table("db.w", schema())
    with pytest.raises(InvalidRequestError, match="exists"):
        catalog.rename_table("db.t", "db.w")
    with pytest.raises(InvalidRequestError, match="exists"):
        catalog.rename_view("db.w", "db.t")
    with pytest.raises(InvalidRequestError, match="not empty"):
        catalog.drop_database("db")
    catalog.drop_database("db", cascade=True)
    assert databases(catalog) == []


# ---- options


def test_options_that_no_catalog_has(opened):
    with pytest.raises(InvalidOptionError) as caught:
        opened(**{"lock.enable": "true"})
    assert "lock.enabled" in caught.value.hint
    with pytest.raises(UnsupportedFeatureError):
        opened(**{"lock.type": "zookeeper"})
    opened(**{"cache-enabled": "true"})
