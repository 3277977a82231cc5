# SPDX-License-Identifier: Apache-2.0
"""Publishing in an Iceberg REST catalog: it follows, catches up, and never shows what is not."""

import contextlib
import itertools
import logging
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest

from storage.errors import InvalidRequestError, LakewardError, StorageUnavailableError
from storage.format.metadata.schema_changes import AddColumn, SetOption
from storage.format.types.types import parse_type
from storage.io.local import LocalFileIO
from storage.table.iceberg import iceberg_figures
from storage.table.table import FileStoreTable
from tests.crash.deaths import forget_caches
from tests.faulty_io import DEATHS, Fault, FaultyFileIO, SimulatedCrash
from tests.table_kit import make_table, reopened, rows_of, write
from tests.unit.storage.table.iceberg.naive_reader import rows
from tests.unit.storage.table.iceberg.rest_catalog import RefusedError, RestCatalog, rest_catalog
from tests.unit.storage.table.iceberg.test_twin import VECTORS, fill

ELSEWHERE = "http://127.0.0.1:1"


@pytest.fixture
def catalog() -> Iterator[RestCatalog]:
    with rest_catalog() as found:
        yield found


def options(catalog: RestCatalog, **others: str) -> dict[str, str]:
    return {
        **VECTORS,
        "metadata.iceberg.storage": "rest-catalog",
        "metadata.iceberg.rest.uri": catalog.uri,
        **others,
    }


def shown(catalog: RestCatalog, snapshot_id: int | None = None, name: str = "db.t") -> list[Any]:
    return rows(catalog.tables[name], snapshot_id)


def ids(catalog: RestCatalog) -> list[int]:
    return [one["snapshot-id"] for one in catalog.tables["db.t"]["snapshots"]]


def check(table: FileStoreTable, catalog: RestCatalog) -> None:
    """Every snapshot that the catalog has holds the rows that the table has."""
    found = catalog.tables["db.t"]
    assert found["current-snapshot-id"] == table.latest_snapshot().id
    kept = set(table.snapshots.ids())
    for snapshot_id in ids(catalog):
        if snapshot_id in kept:
            assert shown(catalog, snapshot_id) == rows_of(table, snapshot=snapshot_id)


def test_the_catalog_has_every_snapshot_at_once(tmp_path, catalog):
    table = make_table(tmp_path, options=options(catalog))
    for number in range(1, 5):
        fill(table, 1, first=number)
        check(table, catalog)
    assert ids(catalog) == table.snapshots.ids()
    assert catalog.tables["db.t"]["location"] == table.layout.root
    before = len(catalog.requests)
    assert table.sync_iceberg() == 0
    assert [method for method, _ in catalog.requests[before:]] == ["GET"]


def test_names_and_token_are_those_of_the_options(tmp_path, catalog):
    catalog.token = "secret"
    named = options(
        catalog,
        **{
            "metadata.iceberg.database": "lake",
            "metadata.iceberg.table": "things",
            "metadata.iceberg.rest.token": "secret",
        },
    )
    table = make_table(tmp_path, options=named)
    fill(table, 1)
    assert shown(catalog, name="lake.things") == rows_of(table)


@pytest.mark.parametrize("elsewhere", [False, True])
def test_client_credentials_get_a_token_and_the_next_once_it_expired(tmp_path, catalog, elsewhere):
    catalog.credential, catalog.token = ("lakeward", "a:b c&d"), "of others"
    rest = {"credential": "lakeward:a:b c&d", "scope": "lake write"}
    if elsewhere:
        rest["oauth2-server-uri"] = f"{catalog.uri}/own/oauth/tokens"
    given = {f"metadata.iceberg.rest.{key}": value for key, value in rest.items()}
    table = make_table(tmp_path, options=options(catalog, **given))
    fill(table, 2)
    check(table, catalog)
    assert catalog.scopes == ["lake write"]  # one token for all requests
    catalog.token = "expired meanwhile"
    fill(table, 1, first=3)
    check(table, catalog)
    assert catalog.scopes == ["lake write"] * 2
    asked = {path for method, path in catalog.requests if path.endswith("/oauth/tokens")}
    assert asked == {"/own/oauth/tokens" if elsewhere else "/v1/oauth/tokens"}


def test_a_token_may_expire_after_every_request(tmp_path, catalog):
    def expire(_method, path):
        if not path.endswith("/config"):
            catalog.token = "expired"

    catalog.credential, catalog.token, catalog.after = ("lakeward", "secret"), "of others", expire
    credential = {"metadata.iceberg.rest.credential": "lakeward:secret"}
    table = make_table(tmp_path, options=options(catalog, **credential))
    fill(table, 2)
    table = table.alter([AddColumn("more", parse_type("BIGINT"))])
    write(table, 3, [("+I", 1, "x", 7)])
    check(table, catalog)
    requests = [path for _, path in catalog.requests if path.endswith("/tables/t")]
    assert len(catalog.scopes) >= len(requests) / 2


def test_a_wrong_secret_is_an_error_and_fails_no_commit(tmp_path, catalog, caplog):
    catalog.credential, catalog.token = ("lakeward", "right"), "of others"
    wrong = options(catalog, **{"metadata.iceberg.rest.credential": "lakeward:wrong"})
    table = make_table(tmp_path, options=wrong)
    fill(table, 1)
    assert "not published" in caplog.text
    assert not catalog.tables
    with pytest.raises(InvalidRequestError, match="credential") as failure:
        table.sync_iceberg()
    assert "wrong" not in str(failure.value)  # the secret
    catalog.credential = ("lakeward", "wrong")
    assert table.sync_iceberg() == 0
    check(table, catalog)


def test_schemas_tags_expiry_and_rollback_are_followed(tmp_path, catalog):
    table = make_table(tmp_path, options=options(catalog))
    fill(table, 2)
    table.create_tag("kept")
    tagged = table.latest_snapshot().id
    table = table.alter([SetOption("snapshot.num-retained.max", "50")])
    table = table.alter([AddColumn("more", parse_type("BIGINT"))])
    write(table, 3, [("+I", 1, "x", 7)])
    check(table, catalog)
    held = catalog.tables["db.t"]
    assert len(held["schemas"]) == 2
    assert held["refs"]["kept"] == {"type": "tag", "snapshot-id": tagged}
    target = table.latest_snapshot().id
    write(table, 4, [("+I", 2, "y", 8)], full=True)
    table.rollback_to(target)
    check(table, catalog)
    table = reopened(table)
    write(table, 5, [("+I", 3, "z", 9)], full=True)
    check(table, catalog)
    table.expire_snapshots(retain_min=1, retain_max=1, time_retained_ms=0)
    check(table, catalog)
    assert ids(catalog) == [tagged, table.latest_snapshot().id]
    table.delete_tag("kept")
    assert ids(catalog) == [table.latest_snapshot().id]


def test_a_branch_is_a_reference_in_the_catalog(tmp_path, catalog):
    table = make_table(tmp_path, options=options(catalog))
    fill(table, 2)
    table.create_branch("b", snapshot_id=table.latest_snapshot().id)
    branch = table.at_branch("b")
    for number in range(3, 6):
        fill(branch, 1, first=number + 20)
        fill(table, 1, first=number)
        held = catalog.tables["db.t"]
        assert shown(catalog, held["refs"]["b"]["snapshot-id"]) == rows_of(branch)
        check(table, catalog)
    table.drop_branch("b")
    assert catalog.tables["db.t"]["refs"].keys() == {"main"}


def test_a_catalog_that_is_away_fails_no_commit_and_is_caught_up_with(tmp_path, catalog, caplog):
    table = make_table(tmp_path, options=options(catalog))
    fill(table, 1)
    away = table.alter([SetOption("metadata.iceberg.rest.uri", ELSEWHERE)])
    with caplog.at_level(logging.WARNING):
        fill(away, 3, first=2)
    assert "not published" in caplog.text
    figures = iceberg_figures(table.layout.root)
    assert figures.failures >= 3
    assert figures.unpublished >= 3
    with pytest.raises(StorageUnavailableError):
        away.sync_iceberg()
    kept = away.snapshots.ids()
    assert away.expire_snapshots(retain_min=1, retain_max=1, time_retained_ms=0) == 0
    assert away.snapshots.ids() == kept
    back = away.alter([SetOption("metadata.iceberg.rest.uri", catalog.uri)])
    assert back.sync_iceberg() == 0
    check(back, catalog)
    assert ids(catalog) == kept
    assert iceberg_figures(table.layout.root).unpublished == 0


def test_an_answer_that_got_lost_is_found_done(tmp_path, catalog):
    table = make_table(tmp_path, options=options(catalog))
    fill(table, 1)

    def lose(method: str, _path: str) -> None:
        if method == "POST":
            raise RefusedError(503, "lost")

    catalog.after = lose
    fill(table, 1, first=2)
    assert catalog.tables["db.t"]["current-snapshot-id"] < table.latest_snapshot().id + 1
    catalog.after = lambda _method, _path: None
    assert table.sync_iceberg() == 0
    check(table, catalog)


def test_a_slow_process_does_not_take_the_catalog_back(tmp_path, catalog):
    table = make_table(tmp_path, options=options(catalog))
    fill(table, 1)
    other = reopened(table)
    once = [True]

    def overtake(method: str, _path: str) -> None:
        if method == "POST" and once:
            once.clear()
            catalog.lock.release()
            fill(other, 2, first=3)
            catalog.lock.acquire()

    catalog.before = overtake
    fill(table, 1, first=2)
    assert not once
    check(reopened(table), catalog)


def test_another_table_of_the_name_is_left_alone(tmp_path, catalog):
    first = make_table(tmp_path / "one", options=options(catalog))
    fill(first, 1)
    second = make_table(tmp_path / "two", options=options(catalog))
    fill(second, 1)
    with pytest.raises(InvalidRequestError, match="another table of this name"):
        second.sync_iceberg()
    check(first, catalog)


def test_a_table_whose_metadata_was_lost_is_made_anew(tmp_path, catalog):
    table = make_table(tmp_path, options=options(catalog))
    fill(table, 3)
    directory = pathlib.Path(table.layout.root).parents[1] / "iceberg" / "db" / "t" / "metadata"
    for path in directory.iterdir():
        path.unlink()
    table.sync_iceberg()
    check(reopened(table), catalog)


def _story(table: FileStoreTable) -> None:
    fill(table, 2)
    table.create_tag("one")
    fill(table, 2, first=3)
    table.expire_snapshots(retain_min=1, retain_max=2, time_retained_ms=0)
    fill(table, 1, first=5)


def _linked(catalog: RestCatalog, store: FaultyFileIO) -> None:
    """Let requests to the catalog count among the operations of the store, and fail like them."""

    def before(method: str, path: str) -> None:
        try:
            if store.crashed:
                raise RefusedError(403, "dead")
            store.is_file(f"catalog: {method} {path}")
        except SimulatedCrash as error:
            raise RefusedError(403, "dead before") from error

    def after(method: str, path: str) -> None:
        try:
            store.is_file(f"catalog: {method} {path}, answer")
        except SimulatedCrash as error:
            raise RefusedError(403, "dead after") from error

    catalog.before, catalog.after = before, after


def _unlinked(catalog: RestCatalog) -> None:
    catalog.before = catalog.after = lambda _method, _path: None


def _operations(directory: pathlib.Path, catalog: RestCatalog) -> int:
    fill(make_table(directory / "first", options=options(catalog)), 1)  # connects this process
    catalog.tables.clear()
    store = FaultyFileIO(LocalFileIO(durable=False))
    table = make_table(directory, options=options(catalog))
    _linked(catalog, store)
    _story(reopened(table, file_io=store))
    _unlinked(catalog)
    assert any(path.startswith("catalog: POST") for _, path in store.operations)
    return len(store.operations)


def _check_after_death(directory: pathlib.Path, catalog: RestCatalog, at: int, mode: Any) -> None:
    catalog.tables.clear()
    store = FaultyFileIO(LocalFileIO(durable=False), Fault(at, mode))
    table = make_table(directory, options=options(catalog))
    _linked(catalog, store)
    with contextlib.suppress(SimulatedCrash, LakewardError):
        _story(reopened(table, file_io=store))
    assert store.crashed
    _unlinked(catalog)
    forget_caches()
    survivor = reopened(table)
    held = catalog.tables.get("db.t")
    if held is not None and held["current-snapshot-id"] != -1:
        current = held["current-snapshot-id"]
        assert current <= survivor.latest_snapshot().id
        assert shown(catalog) == rows_of(survivor, snapshot=current)
    fill(survivor, 1, first=20)
    check(survivor, catalog)
    assert survivor.sync_iceberg() == 0


def test_death_at_some_operations_leaves_no_wrong_row_in_the_catalog(tmp_path, catalog):
    total = _operations(tmp_path / "count", catalog)
    for at, mode in zip(range(11, total, 41), itertools.cycle(DEATHS), strict=False):
        _check_after_death(tmp_path / str(at), catalog, at, mode)


@pytest.mark.full
@pytest.mark.parametrize("mode", DEATHS)
def test_death_at_any_operation_leaves_no_wrong_row_in_the_catalog(tmp_path, catalog, mode):
    total = _operations(tmp_path / "count", catalog)
    for at in range(1, total):
        _check_after_death(tmp_path / str(at), catalog, at, mode)
