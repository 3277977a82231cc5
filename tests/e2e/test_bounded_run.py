# SPDX-License-Identifier: Apache-2.0
"""`lakeward run --once` is a batch job: it ends with what is due after one."""

import pytest

from storage.table.tags import all_tags
from tests.e2e.daemon_process import drain, files_config
from tests.e2e.shop_stream import open_tables
from tests.soak.soak import Load

pytestmark = pytest.mark.spark


def test_each_run_moves_the_tag_of_the_tables_it_wrote(spark, tmp_path):
    load = Load(tmp_path / "events", seed=7, per_file=0)
    config = files_config(
        tmp_path,
        name="nightly",
        table_properties={
            "bucket": "1",
            "tag.automatic-creation": "batch",
            "tag.batch.customized-name": "nightly",
            "snapshot.num-retained.min": "1",
            "snapshot.num-retained.max": "1",
        },
    )

    def run():
        drain(config, spark)
        tables = open_tables(tmp_path / "warehouse")
        return {
            name: (table.latest_snapshot().id, [(t.name, t.snapshot.id) for t in all_tags(table)])
            for name, table in tables.items()
        }

    for table in ("customers", "products"):
        for events in load.shop.insert(table, 20, snapshot=True):
            load._write(events)
    first = run()
    assert {name: tags for name, (_, tags) in first.items()} == {
        name: [("nightly", newest)] for name, (newest, _) in first.items()
    }
    for events in load.shop.insert("customers", 5):
        load._write(events)
    second = run()
    newest = second["customers"][0]
    assert newest > first["customers"][0]
    assert second["customers"] == (newest, [("nightly", newest)])
    assert second["products"] == first["products"]
    assert open_tables(tmp_path / "warehouse")["customers"].to_arrow(tag="nightly").num_rows == 25
