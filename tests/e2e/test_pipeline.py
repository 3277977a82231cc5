# SPDX-License-Identifier: Apache-2.0
"""Real Kafka into real tables: the rows are the model's, and other implementations agree."""

import pytest

from tests.e2e.daemon_process import drain, kafka_config
from tests.e2e.shop_stream import (
    CORRUPT,
    PATTERN,
    TABLES,
    ShopStream,
    assert_identifiers_never_repeat,
    assert_no_file_missing,
    assert_tables_equal_model,
    open_tables,
    quarantined,
    snapshots,
    sorted_rows,
)
from tests.interop.peers import PEERS, peer_rows

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


@pytest.mark.interop
@pytest.mark.parametrize(
    ("rows", "changes", "batch"),
    [
        pytest.param(1_000, 6_000, 2_000, id="short"),
        pytest.param(20_000, 140_000, 40_000, id="long", marks=pytest.mark.full),
    ],
)
def test_rows_equal_the_model_and_bad_messages_are_quarantined(
    kafka_broker, spark, tmp_path, rows, changes, batch
):
    stream = ShopStream(kafka_broker, seed=7 if rows == 1_000 else 8)
    stream.snapshot(rows)
    stream.corruption(CORRUPT[:4])
    stream.changes(changes // 2)
    stream.corruption(CORRUPT[4:])
    stream.changes(changes // 2)
    config = kafka_config(
        tmp_path, kafka_broker, PATTERN, max_records=batch, table_properties={"bucket": "2"}
    )

    drain(config, spark)

    warehouse = tmp_path / "warehouse"
    assert_tables_equal_model(warehouse, stream.shop)
    assert quarantined(warehouse) == stream.corrupt
    assert len(stream.corrupt) == 10
    assert_peers_agree(warehouse)
    for table in open_tables(warehouse).values():
        assert_identifiers_never_repeat(table)
        assert_no_file_missing(table)


def assert_peers_agree(warehouse):
    """Two other implementations read every table to the same rows."""
    tables = open_tables(warehouse)
    for name in TABLES:
        key = tables[name].schema.primary_keys[0]
        ours = sorted_rows(tables[name].to_arrow(), key)
        for peer in PEERS:
            theirs = sorted_rows(peer_rows(peer, warehouse, f"shop.{name}"), key)
            assert theirs.cast(ours.schema).equals(ours), (peer, name)


@pytest.mark.full
def test_a_second_run_goes_on_where_the_first_ended(kafka_broker, spark, tmp_path):
    stream = ShopStream(kafka_broker, seed=11)
    stream.snapshot(200)
    config = kafka_config(tmp_path, kafka_broker, PATTERN)
    drain(config, spark)
    before = {name: table.snapshots.latest_id() for name, table in open_tables_of(tmp_path)}
    drain(config, spark)
    assert before == {n: table.snapshots.latest_id() for n, table in open_tables_of(tmp_path)}
    stream.changes(1_000)
    drain(config, spark)
    assert_tables_equal_model(tmp_path / "warehouse", stream.shop)


def open_tables_of(directory):
    return open_tables(directory / "warehouse").items()


@pytest.mark.parametrize(
    ("batches", "size"),
    [
        pytest.param(14, 300, id="short"),
        pytest.param(60, 1_000, id="long", marks=pytest.mark.full),
    ],
)
def test_runs_stay_below_the_stop_trigger_and_compaction_is_invisible(
    kafka_broker, spark, tmp_path, batches, size
):
    stream = ShopStream(kafka_broker, seed=13)
    stream.snapshot(200)
    stream.changes(batches * size)
    config = kafka_config(
        tmp_path,
        kafka_broker,
        PATTERN,
        max_records=size,
        table_properties={"bucket": "2", "snapshot.num-retained.min": "1000"},
    )

    drain(config, spark)

    assert_tables_equal_model(tmp_path / "warehouse", stream.shop)
    compactions = 0
    for name, table in open_tables_of(tmp_path):
        stop = table.options.stop_trigger
        previous = None
        for snapshot in snapshots(table):
            entries = table.new_scan().live_entries(snapshot)
            for bucket in range(2):
                files = [entry.file for entry in entries if entry.bucket == bucket]
                level_zero = sum(file.level == 0 for file in files)
                runs = level_zero + len({file.level for file in files if file.level})
                if snapshot.commit_kind.value == "COMPACT":
                    assert runs <= stop, (name, snapshot.id, runs)
                else:
                    assert runs <= stop + 1, (name, snapshot.id, runs)
            if snapshot.commit_kind.value == "COMPACT":
                compactions += 1
                key = table.schema.primary_keys[0]
                now = sorted_rows(table.to_arrow(snapshot=snapshot.id), key)
                then = sorted_rows(table.to_arrow(snapshot=previous), key)
                assert now.equals(then), (name, snapshot.id)
            previous = snapshot.id
    assert compactions >= 3


def test_events_without_schema_block_make_tables_with_inferred_types(kafka_broker, spark, tmp_path):
    stream = ShopStream(kafka_broker, seed=14, schema_block=False)
    stream.snapshot(100)
    drain(kafka_config(tmp_path, kafka_broker, PATTERN), spark)
    for name, table in open_tables_of(tmp_path):
        key = table.schema.primary_keys[0]
        found = table.to_arrow(columns=[key])[key].to_pylist()
        assert sorted(found) == sorted(stream.shop.rows(name))
