# SPDX-License-Identifier: Apache-2.0
"""The dashboards: as generated, right PromQL of metrics there are, and nothing is left out."""

import json

import pytest

from deploy.write_dashboards import DASHBOARDS, DIRECTORY
from ingest.config.settings_page import with_tables
from ingest.observe.metrics.metric_table import PAGE, tables
from tests.promql import ROWS, filled, mistakes, row_of, selectors

PANELS = [
    (name, panel)
    for name, document in DASHBOARDS.items()
    for panel in document["panels"]
    if panel["type"] != "row"
]

DEBUG_ONLY = {
    "lakeward_batch_id": "for joins with the log",
    "lakeward_batch_in_progress": "LakewardBatchStuck",
    "lakeward_batch_start_timestamp_seconds": "LakewardBatchStuck",
    "lakeward_config_info": "for joins, and LakewardTwoDaemons",
    "lakeward_decode_walked_records_total": "against decode_records_total: do layouts hold?",
    "lakeward_dlq_sent_total": "against dlq_records_total: are copies complete?",
    "lakeward_driver_epoch": "which of two daemons is the owner",
    "lakeward_ordering_violations_total": "a warning in the log names the topic",
    "lakeward_source_offsets_poll_timestamp_seconds": "LakewardSourcePollFailing",
    "lakeward_source_partitions": "the table of offsets shows them",
    "lakeward_source_wait_seconds": "a setting, read back",
    "lakeward_split_key_updates_total": "a quality of the source",
    "lakeward_table_layout_timestamp_seconds": "how old the figures of files are",
    "lakeward_table_source_timestamp_seconds": "freshness is worked out of it",
    "lakeward_tables_parked_for_bad_records_total": "parked tables are shown",
    "lakeward_webhook_events_total": "the status page shows it",
}
"""Metrics that no panel shows, and what they are for."""


def ids(value):
    return value if isinstance(value, str) else value["title"]


def expressions(panel):
    return [filled(target["expr"]) for target in panel["targets"]]


@pytest.mark.parametrize(("name", "panel"), PANELS, ids=ids)
def test_panels_are_of_metrics_and_labels_that_there_are(name, panel):
    assert panel["targets"]
    for expression in expressions(panel):
        assert mistakes(expression) == []


@pytest.mark.parametrize(("name", "panel"), PANELS, ids=ids)
def test_panels_say_what_they_show(name, panel):
    assert panel["title"]
    assert panel["description"].endswith(".")
    assert panel["fieldConfig"]["defaults"]["unit"]
    place = panel["gridPos"]
    assert place["x"] + place["w"] <= 24
    refs = [target["refId"] for target in panel["targets"]]
    assert len(set(refs)) == len(refs)


@pytest.mark.parametrize("name", DASHBOARDS)
def test_dashboards_are_whole(name):
    document = DASHBOARDS[name]
    numbers = [panel["id"] for panel in document["panels"]]
    assert len(set(numbers)) == len(numbers)
    assert document["uid"] == f"lakeward-{name}"
    cells = set()
    for panel in document["panels"]:
        place = panel["gridPos"]
        taken = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not taken & cells, panel["title"]
        cells |= taken
    for annotation in document["annotations"]["list"]:
        assert mistakes(filled(annotation["expr"])) == []
    assert json.loads((DIRECTORY / f"{name}.json").read_text()) == document


def test_every_metric_is_shown_or_named_as_for_debugging():
    shown = {
        row_of(series).name
        for _, panel in PANELS
        for expression in expressions(panel)
        for series, _ in selectors(expression)
        if row_of(series)
    }
    missing = {name for name, row in ROWS.items() if row.name not in shown}
    assert missing == set(DEBUG_ONLY)


def test_page_of_metrics_is_as_generated():
    page = PAGE.read_text()
    assert with_tables(page, tables()) == page
