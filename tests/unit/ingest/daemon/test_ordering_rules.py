# SPDX-License-Identifier: Apache-2.0
"""`source.ordering: source` where a configuration cannot mean it."""

import pytest
import yaml

from ingest.daemon.configuration import load_settings
from ingest.source.records import (
    EPOCHS_OPTION,
    SourceRange,
    ordering_refused,
    position_options,
    whole_partitions,
)
from storage.errors import InvalidOptionError
from storage.format.metadata.schema import new_schema
from storage.format.types.types import parse_type


def loaded(tmp_path, **sections):
    raw = {
        "pipeline": {"name": "shop"},
        "source": {"type": "files", "path": str(tmp_path), "ordering": "source"},
        "sink": {"warehouse": str(tmp_path / "lake")},
    }
    for name, more in sections.items():
        raw[name] = {**raw[name], **more} if isinstance(more, dict) else more
    path = tmp_path / "shop.yaml"
    path.write_text(yaml.safe_dump(raw))
    return load_settings(path)


def test_it_is_honoured(tmp_path):
    assert loaded(tmp_path).events.ordering == "source"
    own = {"table.properties": {"merge-engine": "partial-update"}}
    assert loaded(tmp_path, sink=own).events.ordering == "source"


@pytest.mark.parametrize(
    ("sections", "says"),
    [
        ({"source": {"format": "canal-json"}}, "canal-json carry no source position"),
        ({"source": {"format": "json"}}, "json carry no source position"),
        ({"sink": {"table.properties": {"sequence.field": "ts"}}}, "sequence.field = ts"),
        ({"sink": {"table.properties": {"merge-engine": "first-row"}}}, "what arrived first"),
        (
            {"tables": [{"match": "a.b", "table.properties": {"merge-engine": "aggregation"}}]},
            "counts a change again",
        ),
    ],
)
def test_what_cannot_be_ordered_is_refused_before_the_first_event(tmp_path, sections, says):
    with pytest.raises(InvalidOptionError, match=says) as error:
        loaded(tmp_path, **sections)
    assert "kafka" in str(error.value)


def table(**options):
    positions = [(f"_seq_{name}", "BIGINT") for name in ("epoch", 1, 2, 3)]
    columns = [("id", "BIGINT"), ("day", "DATE"), *positions]
    partitions = ("day",) if options.pop("moves", False) else ()
    return new_schema(
        [(name, parse_type(text)) for name, text in columns],
        primary_keys=("id",),
        partition_keys=partitions,
        options={"bucket": "1", **position_options("mysql"), **options},
        now_ms=0,
    )


def test_tables_are_checked_when_they_are_found():
    assert ordering_refused(table(), "source") == ""
    assert "set source.ordering: source" in ordering_refused(table(), "kafka")
    moving = table(moves=True, bucket="-1")
    assert "keys move between partitions" in ordering_refused(moving, "source")
    odd = table(**{EPOCHS_OPTION: "yesterday"})
    assert "epochs cannot be read" in ordering_refused(odd, "source")
    other = table(**{"lakeward.position": "oracle"})
    assert "_seq_1 has another type" in ordering_refused(other, "source")
    descending = table(**{"sequence.field.sort-order": "descending"})
    assert "descending" in ordering_refused(descending, "source")


def test_a_partition_is_read_by_one_task():
    def piece(topic, partition, start):
        return SourceRange(topic, partition, start, start + 10)

    tasks = [
        [piece("a", 0, 0), piece("a", 1, 0)],
        [piece("a", 1, 10), piece("b", 0, 0)],
        [piece("b", 0, 10)],
    ]
    assert whole_partitions(tasks) == [
        [piece("a", 0, 0), piece("a", 1, 0), piece("a", 1, 10)],
        [piece("b", 0, 0), piece("b", 0, 10)],
    ]
