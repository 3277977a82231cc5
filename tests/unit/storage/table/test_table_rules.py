# SPDX-License-Identifier: Apache-2.0
"""Options that a schema may not ask for together; the words are those of Apache Paimon's Java."""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence

import pytest

from storage.errors import InvalidOptionError, InvalidSchemaChangeError
from storage.format.metadata.schema import TableSchema, new_schema
from storage.format.metadata.schema_changes import RemoveOption, SetOption, UpdateNullability
from storage.format.types.types import parse_type
from storage.table.table_rules import check_table
from tests.table_kit import make_table, reopened, rows_of, write

COLUMNS = [("k", parse_type("INT")), ("v", parse_type("INT")), ("g", parse_type("INT"))]


def schema(options: Mapping[str, str], keys: Sequence[str] = ("k",)) -> TableSchema:
    given = {"bucket": "1", **options} if keys else options
    return new_schema(COLUMNS, primary_keys=keys, options=given)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"scan.mode": "from-timestamp"}, "must set only one key in .scan.timestamp-millis"),
        (
            {"scan.mode": "latest", "scan.timestamp-millis": "1"},
            "scan.timestamp-millis must be null when you use latest for scan.mode",
        ),
        (
            {"scan.mode": "from-snapshot-full"},
            "scan.snapshot-id can not be null when you use from-snapshot-full",
        ),
        ({"incremental-between": "1,2", "scan.snapshot-id": "1"}, "must be null when you set"),
        ({"sequence.field": ""}, "Sequence field: '' can not be found in table schema"),
        ({"sequence.field": "g", "merge-engine": "first-row"}, "sequence field on FIRST_ROW"),
        (
            {"merge-engine": "partial-update", "fields.g.sequence-group": "v,v"},
            "Field v is defined repeatedly by multiple groups",
        ),
        (
            {"merge-engine": "partial-update", "fields.g.sequence-group": ""},
            "Field  can not be found in table schema",
        ),
        ({"sequence.snapshot-ordering": "true"}, "requires write-only = true"),
        (
            {
                "sequence.snapshot-ordering": "true",
                "write-only": "true",
                "sequence.field": "g",
            },
            "mutually exclusive with sequence.field",
        ),
        ({"row-tracking.enabled": "true"}, "Cannot define primary-key for row tracking table"),
        ({"data-evolution.enabled": "true"}, "Data evolution config must enabled with"),
        ({"pk-clustering-override": "true"}, "without 'clustering.columns'"),
        ({"snapshot.num-retained.min": "0"}, "snapshot.num-retained.min should be at least 1"),
        (
            {"snapshot.num-retained.min": "5", "snapshot.num-retained.max": "3"},
            "snapshot.num-retained.min should not be larger than snapshot.num-retained.max",
        ),
        ({"type": "nope"}, "give one of `table`"),
    ],
)
def test_options_of_a_keyed_table_that_cannot_stand_together(
    options: dict[str, str], text: str
) -> None:
    with pytest.raises(InvalidOptionError, match=text):
        check_table(schema(options))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"bucket": "-2"}, "The number of buckets needs to be greater than 0"),
        ({"sequence.snapshot-ordering": "true", "write-only": "true"}, "requires a primary key"),
    ],
)
def test_options_of_an_append_table_that_cannot_stand_together(
    options: dict[str, str], text: str
) -> None:
    with pytest.raises(InvalidOptionError, match=text):
        check_table(schema(options, keys=()))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"scan.mode": "from-snapshot", "scan.snapshot-id": "1"},
        {"scan.timestamp-millis": "1"},
        {"scan.mode": "compacted-full"},
        {"merge-engine": "partial-update", "fields.g.sequence-group": "v"},
        {"sequence.snapshot-ordering": "true", "write-only": "true"},
        {"type": "table"},
        {"row-tracking.enabled": "false"},
    ],
)
def test_options_that_go_together(options: dict[str, str]) -> None:
    check_table(schema(options))


BAD_VALUES = [
    ("manifest.compression", "zip"),
    ("manifest.delete-file-drop-stats", "yes"),
    ("manifest.merge-min-count", "0"),
    ("file.compression", "zap"),
    ("file.compression.per.level", "0:zap"),
    ("file.compression.zstd-level", "high"),
    ("file.format.per.level", "0:csv"),
    ("changelog-file.format", "csv"),
    ("changelog-file.compression", "zap"),
    ("changelog-file.stats-mode", "some"),
    ("metadata.stats-mode", "truncate"),
    ("metadata.stats-mode.per.level", "0:some"),
    ("fields.v.stats-mode", "some"),
    ("parquet.enable.dictionary", "no"),
    ("parquet.page.size", "big"),
    ("orc.stripe.size", "64 mb"),
    ("orc.timestamp-ltz.legacy.type", "maybe"),
    ("avro.codec", "zap"),
    ("alter-column-null-to-not-null.disabled", "no"),
    ("disable-explicit-type-casting", "1"),
    ("deletion-vectors.modifiable", "on"),
    ("table-read.sequence-number.enabled", "on"),
    ("streaming-read-overwrite", "on"),
    ("lakeward.streaming-read.unmerged", "on"),
    ("dynamic-bucket.max-buckets", "0"),
    ("full-compaction.delta-commits", "often"),
    ("partition.timestamp-formatter", "yyyy-QQ"),
    ("sink.process-time-zone", "Mars/Olympus"),
    ("sink.watermark-time-zone", "Mars/Olympus"),
    ("tag.creation-delay", "2 d"),
    ("scan.timestamp", "yesterday"),
    ("scan.snapshot-id", "first"),
    ("scan.mode", "newest"),
]


@pytest.mark.parametrize(("key", "value"), BAD_VALUES, ids=[key for key, _ in BAD_VALUES])
def test_a_bad_value_is_refused_when_a_table_is_made_and_altered(tmp_path, key, value):
    with pytest.raises(InvalidOptionError) as made:
        make_table(tmp_path / "made", options={key: value})
    table = make_table(tmp_path / "altered")
    with pytest.raises(InvalidOptionError) as altered:
        table.alter([SetOption(key, value)])
    assert str(made.value) == str(altered.value)
    assert made.value.hint
    assert value in str(made.value) or value.partition(":")[2] in str(made.value)
    assert table.latest().schema.options == {"bucket": "1"}


def test_compressions_are_those_of_the_format(tmp_path):
    for file_format, compression in (("avro", "lz4"), ("orc", "brotli"), ("parquet", "bzip2")):
        options = {"file.format": file_format, "file.compression": compression}
        with pytest.raises(InvalidOptionError, match="cannot have this compression"):
            make_table(tmp_path / file_format, options=options)
    mixed = {"file.format.per.level": "0:avro", "file.compression": "lz4"}
    with pytest.raises(InvalidOptionError, match="Avro files cannot"):
        make_table(tmp_path / "mixed", options=mixed)
    per_level = {"file.compression.per.level": "0:snappy"}
    make_table(tmp_path / "fine", options={**mixed, **per_level})


def _with_stored_option(table, key, value):
    """The table as if another engine had stored an option that we would have refused."""
    newest = table.schemas.latest()
    options = {**newest.options, key: value}
    assert table.schemas.publish(dataclasses.replace(newest, id=newest.id + 1, options=options))
    return reopened(table)


@pytest.mark.parametrize("key", ["manifest.compression", "manifest.delete-file-drop-stats"])
def test_a_bad_value_that_is_stored_is_refused_at_use_and_can_be_altered(tmp_path, key):
    table = make_table(tmp_path)
    write(table, 1, [("+I", 1, "a")])
    table = _with_stored_option(table, key, "zip")
    with pytest.raises(InvalidOptionError, match=key):
        write(table, 2, [("+I", 2, "b")])
    table = reopened(table).alter([RemoveOption(key)])
    write(table, 3, [("+I", 2, "b")])
    assert rows_of(table) == [(1, "a"), (2, "b")]


def test_an_alias_is_the_option_itself(tmp_path):
    table = make_table(tmp_path, options={"deduplicate.ignore-delete": "true"})
    write(table, 1, [("+I", 1, "a")])
    for change in (
        SetOption("deduplicate.ignore-delete", "false"),
        SetOption("ignore-delete", "false"),
        RemoveOption("deduplicate.ignore-delete"),
    ):
        with pytest.raises(InvalidSchemaChangeError, match="ignore-delete from true to false"):
            table.alter([change])


def test_booleans_and_words_are_read_in_any_spelling(tmp_path):
    table = make_table(
        tmp_path,
        options={
            "merge-engine": "Partial_Update",
            "manifest.compression": " SNAPPY ",
            "alter-column-null-to-not-null.disabled": " False",
        },
    )
    write(table, 1, [("+I", 1, "a")])
    manifests = pathlib.Path(table.layout.root, "manifest").glob("manifest-*")
    written = [path.read_bytes() for path in manifests]
    assert written
    assert all(b"avro.codec\x0csnappy" in content for content in written)
    altered = table.alter([UpdateNullability("v", nullable=False)])
    assert not altered.schema.field("v").type.nullable
