# SPDX-License-Identifier: Apache-2.0
"""At every commit Iceberg engines see the rows that we see, however they find the table.

Random histories (`iceberg_histories.py`): after each step PyIceberg, DuckDB's extension and polars
read the newest state and earlier ones, from the metadata file, from the table's directory and
through the catalog service, by snapshot, by time and by tag; Spark's runtime does so now and then.
Parts of the long form: `-k vectors-64`, or `-k "spark and append"`.
"""

import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from storage.table.inspect.system.registry import system_table
from storage.table.retention.consumers import write_consumer
from tests.catalog_service import TOKEN
from tests.interop.iceberg_histories import KINDS, TABLE_LOCATION, History, Kind
from tests.interop.iceberg_readers import (
    Place,
    catalog_service,
    place_of,
    read,
    rows_as_read,
    rows_of,
)
from tests.interop.peers import PeerFailedError
from tests.interop.spark_peer import SparkPeer
from tests.table_kit import make_table, write

pytestmark = pytest.mark.interop

WAYS = {
    "pyiceberg": ("file", "rest"),
    "duckdb": ("file", "directory", "rest"),
    "polars": ("rest",),
}
BY_NAME = {kind.name: kind for kind in KINDS}
SEEDS = 16
MINUTE_MS = 60_000


def _asked(history: History, reference: str) -> Iterator[dict[str, Any]]:
    """How a state can be asked for."""
    if reference.isdigit():
        yield {"snapshot": reference}
        yield {"timestamp": history.times[reference]}
    else:
        yield {"ref": reference}


def _agrees(engine: str, way: str, place: Place, at: dict[str, Any], expected: pa.Table) -> None:
    found = read(engine, way, place, at)
    where = (engine, way, at, place.metadata)
    assert rows_of(found, expected) == rows_as_read(expected, engine), where


def _check(history: History, url: str) -> None:
    """Every engine sees the newest state, and one of them each earlier one, in one of its ways."""
    place, rng = place_of(history.table, url), history.rng
    references = history.references()
    for engine, ways in WAYS.items():
        _agrees(engine, rng.choice(ways), place, {}, history.known[references[0]])
    for reference in references[1:]:
        for at in _asked(history, reference):
            engine = "pyiceberg" if "ref" in at else rng.choice(list(WAYS))  # DuckDB has no tags
            _agrees(engine, rng.choice(WAYS[engine]), place, at, history.known[reference])


def _run(kind: Kind, seed: int, directory: pathlib.Path, steps: int) -> None:
    history = History(kind, seed, directory)
    with catalog_service(directory) as url:
        for _ in range(steps):
            history.step()
            if history.table.latest_snapshot() is not None:
                _check(history, url)
    assert history.table.latest_snapshot() is None or history.table.sync_iceberg() == 0


@pytest.mark.parametrize("name", ["partitions", "append-vectors"])
def test_engines_see_our_rows_at_every_commit(name: str, tmp_path: pathlib.Path) -> None:
    _run(BY_NAME[name], 1, tmp_path, steps=5)


@pytest.mark.full
@pytest.mark.parametrize("name", BY_NAME)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_engines_see_our_rows_in_many_histories(
    name: str, seed: int, tmp_path: pathlib.Path
) -> None:
    _run(BY_NAME[name], 100 + seed, tmp_path, steps=8)


# --------------------------------------------------------------------------------------- Spark


def _spark_catalogs(directory: pathlib.Path, url: str) -> dict[str, str]:
    """Settings of two catalogs, each named for this warehouse."""
    mark = f"{directory.parent.name}_{directory.name}".replace("-", "_")
    rest, hadoop = f"spark.sql.catalog.rest_{mark}", f"spark.sql.catalog.hadoop_{mark}"
    return {
        rest: "org.apache.iceberg.spark.SparkCatalog",
        f"{rest}.type": "rest",
        f"{rest}.uri": url,
        f"{rest}.token": TOKEN,
        f"{rest}.cache-enabled": "false",
        hadoop: "org.apache.iceberg.spark.SparkCatalog",
        f"{hadoop}.type": "hadoop",
        f"{hadoop}.warehouse": f"file://{directory}/iceberg",
        f"{hadoop}.cache-enabled": "false",
    }


def _spark_clause(at: dict[str, Any]) -> str:
    if "timestamp" in at:
        return f" TIMESTAMP AS OF timestamp_millis({at['timestamp']})"
    if "ref" in at:
        return f" VERSION AS OF '{at['ref']}'"
    return f" VERSION AS OF {at['snapshot']}" if at else ""


def _check_in_spark(history: History, spark: SparkPeer, settings: dict[str, str]) -> None:
    hadoop = history.kind.settings["metadata.iceberg.storage"] == "hadoop-catalog"
    rest, other = (key.rpartition(".")[2] for key in settings if key.count(".") == 3)
    names = [f"{rest}.db.t", *([f"{other}.db.t"] if hadoop else [])]
    references = history.references()
    states = [(at, one) for one in references for at in _asked(history, one)]
    for name in names:
        for at, reference in [({}, references[0]), *states]:
            expected = history.known[reference]
            text = f"SELECT * FROM {name}{_spark_clause(at)}"
            found = spark.query(text, settings=settings)
            assert rows_of(found, expected) == rows_as_read(expected, "spark"), (name, at)
    if not hadoop:
        for reference in references:
            option = "snapshot-id" if reference.isdigit() else "tag"
            view = {"t": (history.table.layout.root, {option: reference})}
            found = spark.query("SELECT * FROM t", iceberg=view)
            expected = history.known[reference]
            assert rows_of(found, expected) == rows_as_read(expected, "spark"), reference


@pytest.mark.full
@pytest.mark.parametrize("name", BY_NAME)
@pytest.mark.parametrize("seed", range(2))
def test_spark_sees_our_rows(
    name: str, seed: int, spark: SparkPeer, tmp_path: pathlib.Path
) -> None:
    history = History(BY_NAME[name], 200 + seed, tmp_path)
    with catalog_service(tmp_path) as url:
        settings = _spark_catalogs(tmp_path, url)
        for number in range(1, 13):
            history.step()
            if number % 6 == 0 and history.table.latest_snapshot() is not None:
                _check_in_spark(history, spark, settings)


PLAIN_PLANS = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Small tables are read faster without compiled plans."""


@pytest.mark.full
@pytest.mark.parametrize("name", BY_NAME)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_spark_sees_our_rows_at_every_commit(
    name: str, seed: int, spark: SparkPeer, tmp_path: pathlib.Path
) -> None:
    """By the metadata file: the newest state after every step, and an earlier one."""
    history = History(BY_NAME[name], 100 + seed, tmp_path)
    for _ in range(8):
        history.step()
        if history.table.latest_snapshot() is None:
            continue
        place, references = place_of(history.table, ""), history.references()
        asked: list[tuple[dict[str, str], str]] = [({}, references[0])]
        for one in references[1:2]:
            option = {"snapshot-id": one} if one.isdigit() else {"tag": one}
            if one.isdigit() and history.rng.random() < 0.5:
                option = {"as-of-timestamp": str(history.times[one])}
            asked.append((option, one))
        for option, reference in asked:
            view = {"t": (f"file://{place.metadata}", option)}
            found = spark.query("SELECT * FROM t", iceberg=view, settings=PLAIN_PLANS)
            expected = history.known[reference]
            assert rows_of(found, expected) == rows_as_read(expected, "spark"), (place, option)


# ---------------------------------------------------------------------------------- ClickHouse


@pytest.mark.full
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", ["append", "append-buckets", "first-row"])
def test_clickhouse_sees_our_rows(name: str, seed: int, tmp_path: pathlib.Path) -> None:
    history = History(BY_NAME[name], 300 + seed, tmp_path)
    for _ in range(12):
        history.step()
        if history.table.latest_snapshot() is not None:
            place, references = place_of(history.table, ""), history.references()
            _agrees("clickhouse", "directory", place, {}, history.known[references[0]])
            for one in filter(str.isdigit, references):
                for at in _asked(history, one):
                    _agrees("clickhouse", "directory", place, at, history.known[one])


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "text"), [("vectors", "Position deletes"), ("optimized", "_KEY_k")]
)
def test_what_clickhouse_cannot_read_it_refuses(
    name: str, text: str, tmp_path: pathlib.Path
) -> None:
    """The guide says so; should a later version read it, the guide has to say that."""
    history = History(BY_NAME[name], 1, tmp_path)
    for _ in range(4):
        history.write()
    history.write(full=True)
    history.write()
    with pytest.raises(PeerFailedError, match=text):
        read("clickhouse", "directory", place_of(history.table.latest(), ""), {})


# ------------------------------------------------------------------------------------- filters

NAN, INFINITY = float("nan"), float("inf")
FLOATS: tuple[list[float | None], ...] = (
    [-1.0, -0.0],
    [NAN, 3.0],
    [INFINITY, 7.0],
    [NAN, NAN],
    [0.0, None],
    [-INFINITY, -5.0],
    [None, None],
    [1.0, 2.0],
)
"""Values of files."""

FILTERS: dict[str, Callable[[float], bool]] = {
    "d > 1": lambda x: x > 1 or x != x,
    "d >= 5": lambda x: x >= 5 or x != x,
    "d < 0": lambda x: x < 0,
    "d <= -0.0": lambda x: x <= 0,
    "d = 0": lambda x: x == 0,
    "d <> 3": lambda x: x != 3,
    "isnan(d)": lambda x: x != x,
    "d = CAST('inf' AS DOUBLE)": lambda x: x == INFINITY,
    "d = CAST('nan' AS DOUBLE)": lambda x: x != x,
    "d > CAST('inf' AS DOUBLE)": lambda x: x != x,
    "r.x > 5": lambda x: x > 5 or x != x,
}
"""Where NaN is greater than every number, as in SQL."""

NAN_IS_NO_NUMBER: dict[str, Callable[[float], bool]] = {
    "d > 1": lambda x: x > 1,
    "d < 0": lambda x: x < 0,
    "d <= 0": lambda x: x <= 0,
    "d = 0": lambda x: x == 0,
    "d != 3": lambda x: x != 3,
    "d is nan": lambda x: x != x,
    "d is not nan": lambda x: x == x,
}


def _floats(directory: pathlib.Path) -> Place:
    columns = (("k", "INT"), ("d", "DOUBLE"), ("f", "FLOAT"), ("r", "ROW<x DOUBLE>"))
    table = make_table(
        directory, columns=columns, keys=(), options={**TABLE_LOCATION, "bucket": "-1"}
    )
    for number, values in enumerate(FLOATS):
        rows = [("+I", 2 * number + i, one, one, {"x": one}) for i, one in enumerate(values)]
        write(table, number + 1, rows)
    return place_of(table, "")


def _matching(matches: Callable[[float], bool]) -> list[int]:
    """Keys of the rows; a null matches nothing."""
    numbers = [number for values in FLOATS for number in values]
    return [key for key, one in enumerate(numbers) if one is not None and matches(one)]


@pytest.mark.parametrize(
    ("engine", "filters"), [("duckdb", FILTERS), ("pyiceberg", NAN_IS_NO_NUMBER)]
)
def test_filters_of_floats_find_nan_infinities_and_both_zeros(
    engine: str, filters: dict[str, Callable[[float], bool]], tmp_path: pathlib.Path
) -> None:
    """Neither the bounds of files nor those of their row groups hide a row."""
    place = _floats(tmp_path)
    for text, matches in filters.items():
        found = read(engine, "file", place, {"where": text})
        assert sorted(found.column("k").to_pylist()) == _matching(matches), text


@pytest.mark.parametrize("engine", ["duckdb", "pyiceberg"])
def test_files_without_field_ids_and_names_that_avro_lacks_are_read(
    engine: str, tmp_path: pathlib.Path
) -> None:
    """Pypaimon's files have no field ids; names of partition keys are in the Avro schemas."""
    columns = (("k", "BIGINT"), ("größe a-b", "STRING"), ("1x", "BIGINT"), ("r", "ROW<x DOUBLE>"))
    options = {**TABLE_LOCATION, "bucket": "-1"}
    table = make_table(
        tmp_path, columns=columns, keys=(), partitions=("größe a-b", "1x"), options=options
    )
    write(table, 1, [("+I", 1, "a", 5, {"x": 2.0})])
    (file,) = pathlib.Path(table.layout.root).rglob("data-*.parquet")
    pq.write_table(pa.Table.from_pylist(pq.ParquetFile(file).read().to_pylist()), file)
    found = read(engine, "file", place_of(table, ""), {})
    assert found.to_pylist() == [{"k": 1, "größe a-b": "a", "1x": 5, "r": {"x": 2.0}}]


@pytest.mark.full
def test_filters_of_floats_find_the_same_in_spark(spark: SparkPeer, tmp_path: pathlib.Path) -> None:
    view: dict[str, tuple[str, dict[str, str]]] = {
        "t": (f"file://{_floats(tmp_path).metadata}", {})
    }
    for text, matches in FILTERS.items():
        found = spark.query(f"SELECT k FROM t WHERE {text}", iceberg=view)
        assert sorted(found.column("k").to_pylist()) == _matching(matches), text


# ---------------------------------------------------------------------------- readers that stay


@pytest.mark.full
@pytest.mark.parametrize("guard", ["time", "tag", "consumer"])
def test_a_reader_of_an_old_snapshot_loses_nothing(guard: str, tmp_path: pathlib.Path) -> None:
    """An hour of commits and expiry; the reader keeps the metadata file it began with."""
    history = History(BY_NAME["vectors"], 5, tmp_path)
    for _ in range(3):
        history.write(full=True)
    table = history.table = history.table.latest()
    began = table.latest_snapshot()
    assert began is not None
    expected = table.to_arrow()
    retained_ms = {"time": 70 * MINUTE_MS}.get(guard, 0)
    if guard == "tag":
        table.create_tag("held")
    elif guard == "consumer":
        write_consumer(table, "reader", began.id)
    held = place_of(table, "")
    at = {"snapshot": str(began.id)}
    with catalog_service(tmp_path) as url:
        for minute in range(0, 60, 5):
            history.clock.advance(5 * MINUTE_MS)
            history.write(full=minute % 3 == 0)
            history.table.expire_snapshots(retain_min=1, time_retained_ms=retained_ms)
            for engine, way, place in (
                ("pyiceberg", "file", held),
                ("duckdb", "file", held),
                ("polars", "rest", place_of(history.table, url)),
                ("duckdb", "rest", place_of(history.table, url)),
            ):
                _agrees(engine, way, place, at, expected)
        newest = history.table.latest_snapshot()
        assert newest is not None
        assert newest.id > began.id + 12
        _release(history, guard)
        with pytest.raises(PeerFailedError):  # never other rows
            read("pyiceberg", "file", held, at)
        with pytest.raises(PeerFailedError):
            read("duckdb", "rest", place_of(history.table, url), at)


def _release(history: History, guard: str) -> None:
    history.clock.advance(60 * MINUTE_MS)
    if guard == "tag":
        history.table.delete_tag("held")
    elif guard == "consumer":
        newest = history.table.latest_snapshot()
        assert newest is not None
        write_consumer(history.table, "reader", newest.id + 1)
    history.table.expire_snapshots(retain_min=1, time_retained_ms=1)


def test_the_optimized_view_is_what_engines_see(tmp_path: pathlib.Path) -> None:
    history = History(BY_NAME["optimized"], 2, tmp_path)
    history.write(full=True)
    history.write()
    table = history.table.latest()
    assert table.to_arrow().num_rows != system_table(table, "ro").num_rows
    _agrees("duckdb", "file", place_of(table, ""), {}, system_table(table, "ro"))
