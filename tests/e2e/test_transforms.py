# SPDX-License-Identifier: Apache-2.0
"""Row transforms of a pipeline on Spark: random histories against plain Python."""

import json

import pytest
import yaml

from storage.catalog.catalog import FileSystemCatalog
from tests.e2e.daemon_process import drain
from tests.unit.ingest.transformed_source import PARTITIONS, RULE, Source

pytestmark = [pytest.mark.full, pytest.mark.spark]


def test_everything_at_once_over_random_histories(spark, tmp_path):
    """Filter (left, entered), exclude, computed, mask, soft delete, partition, metadata, TOAST."""
    rule = yaml.safe_load(RULE + PARTITIONS["cross"])
    config = tmp_path / "shop.yaml"
    config.write_text(
        yaml.safe_dump(
            {
                "pipeline": {"name": "shop"},
                "source": {"type": "files", "path": str(tmp_path / "events")},
                "sink": {
                    "warehouse": str(tmp_path / "lake"),
                    "metadata.columns": {"columns": ["op", "table"]},
                },
                "tables": [{"match": "shop.*", "deletes": "soft", **rule}],
                "metrics": {"port": 0},
            }
        )
    )
    folder = tmp_path / "events" / "pg.public.orders"
    folder.mkdir(parents=True)
    source = Source("e2e", full=False, soft=True, partition="cross", metadata=True)
    for number in range(3):
        records = [source.change() for _ in range(150)]
        lines = [b'{"key":' + key + b',"value":' + value + b"}\n" for key, value in records]
        (folder / f"events-{number}.jsonl").write_bytes(b"".join(lines))
        drain(config, spark)
        catalog = FileSystemCatalog(str(tmp_path / "lake"))
        table = catalog.table("shop.orders")
        assert catalog.table("lakeward._quarantine").to_arrow().to_pylist() == []
        assert source.by_key(table.to_arrow().to_pylist()) == source.lake
    assert table.schema.partition_keys == ("dt",)
    assert json.loads(table.schema.options["lakeward.hidden-columns"]).keys() == {"price"}
