# SPDX-License-Identifier: Apache-2.0
"""`source.ordering: source` on Spark: one table's changes over merged topics, out of order."""

import json
import random

import pytest
import yaml

from storage.catalog.catalog import FileSystemCatalog
from tests.e2e.daemon_process import drain

pytestmark = [pytest.mark.full, pytest.mark.spark]


def event(op, key, name, at, **source):
    place = {"file": f"binlog.{1 + at // 5_000:06d}", "pos": at % 5_000, "row": 0}
    base = {"connector": "mysql", "name": "m", "db": "shop", "table": "items", "ts_ms": at // 50}
    value = {
        "before": {"id": key, "name": None} if op == "d" else None,
        "after": None if op == "d" else {"id": key, "name": name},
        "source": {**base, "snapshot": "false", **place, **source},
        "op": op,
        "ts_ms": 1,
    }
    return json.dumps({"key": {"id": key}, "value": value})


def history(rng, first, count, rows):
    """Events of random changes, and the rows after them in `rows`."""
    events = []
    for number in range(first, first + count):
        key, at = rng.randrange(200), 4 + number * 7
        if key in rows and rng.random() < 0.25:
            del rows[key]
            events.append(event("d", key, None, at))
        else:
            events.append(event("u" if key in rows else "c", key, f"v{number}", at))
            rows[key] = f"v{number}"
    return events


def write(directory, number, topics):
    for topic, lines in topics.items():
        folder = directory / "events" / topic
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number:04d}.jsonl").write_text("\n".join(lines) + "\n")


def stored(directory):
    table = FileSystemCatalog(str(directory / "lake")).table("shop.items")
    return {row["id"]: row["name"] for row in table.to_arrow().to_pylist()}


def test_merged_topics_out_of_order_end_in_the_rows_of_the_source(spark, tmp_path):
    rng = random.Random(7)
    path = tmp_path / "shop.yaml"
    path.write_text(
        yaml.safe_dump(
            {
                "pipeline": {"name": "shop", "trigger": {"max.records": 400}},
                "source": {
                    "type": "files",
                    "path": str(tmp_path / "events"),
                    "ordering": "source",
                },
                "sink": {
                    "warehouse": str(tmp_path / "lake"),
                    # a full compaction forgets deletes, which older rows may still follow here
                    "table.properties": {"bucket": "3", "write-only": "true"},
                },
                "metrics": {"port": 0},
            }
        )
    )
    rows = {}
    events = history(rng, 0, 1_500, rows)
    topics = {"a.late": [], "b.early": [], "c.both": []}
    for number, line in enumerate(events):
        # the topic that is read first has the newest changes
        topic = "a.late" if number > 900 else "b.early" if number < 600 else "c.both"
        topics[topic if rng.random() < 0.8 else rng.choice(list(topics))].append(line)
    topics["b.early"] += topics["b.early"][-150:]  # delivered again
    write(tmp_path, 1, topics)
    drain(path, spark)
    assert stored(tmp_path) == rows

    key = min(rows)
    more = history(rng, 1_500, 300, rows)
    again = [event("r", key, "read", 0, snapshot="incremental", file="", pos=0)]
    rows[key] = "read"
    after = history(rng, 1_900, 200, rows)
    write(tmp_path, 2, {"c.both": more + again + after, "a.late": events[-40:]})
    drain(path, spark)
    assert stored(tmp_path) == rows
