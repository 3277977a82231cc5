# SPDX-License-Identifier: Apache-2.0
import dataclasses
import logging
import pathlib
import pickle

import pytest

from storage.errors import InvalidOptionError, UnsupportedFeatureError
from storage.options import options as options_module
from storage.options.options import (
    TableOptions,
    find_option,
    main,
    options_page,
    require_readable,
    require_writable,
)
from storage.options.table import TABLE_OPTIONS
from storage.options.values import Treatment, duration_ms, memory_size


def _options(**raw):
    return TableOptions.from_strings({key.replace("__", "."): value for key, value in raw.items()})


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("128 mb", 128 << 20),
        ("128MB", 128 << 20),
        ("64kb", 64 << 10),
        ("1 g", 1 << 30),
        ("2 tb", 2 << 40),
        ("500 B", 500),
        ("  7  bytes ", 7),
        ("1024", 1024),
        ("3 mebibytes", 3 << 20),
    ],
)
def test_sizes_are_read_in_all_spellings(text, size):
    assert memory_size(text) == size


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("1 h", 3_600_000),
        ("30 min", 1_800_000),
        ("10s", 10_000),
        ("500 ms", 500),
        ("250", 250),
        ("2 days", 172_800_000),
        ("5000 us", 5),
        ("0", 0),
    ],
)
def test_durations_are_read_in_all_spellings(text, milliseconds):
    assert duration_ms(text) == milliseconds


@pytest.mark.parametrize("text", ["", "mb", "12 parsecs", "-1 mb", "1.5 gb"])
def test_malformed_sizes_and_durations_are_refused_by_name(text):
    with pytest.raises(InvalidOptionError, match="write-buffer-size"):
        TableOptions.from_strings({"write-buffer-size": text})
    with pytest.raises(InvalidOptionError, match=r"snapshot\.time-retained"):
        TableOptions.from_strings({"snapshot.time-retained": text})


def test_defaults_are_those_of_the_format():
    options = TableOptions.from_strings({})
    assert options.bucket == -1
    assert options.target_file_size == 128 << 20
    assert options.write_buffer_size == 256 << 20
    assert options.file_compression == "zstd"
    assert options.zstd_level == 1
    assert options.snapshot_num_retained_min == 10
    assert options.snapshot_num_retained_max == 2_147_483_647
    assert options.snapshot_time_retained_ms == 3_600_000
    assert options.snapshot_expire_limit == 50
    assert options.manifest_target_size == 8 << 20
    assert options.stats_mode == "truncate(16)"
    assert options.sequence_field == ()
    assert options.bucket_key is None


def test_defaults_follow_the_compaction_trigger():
    assert _options().compaction_trigger == 5
    assert (_options().stop_trigger, _options().num_levels) == (8, 6)
    options = TableOptions.from_strings({"num-sorted-run.compaction-trigger": "3"})
    assert (options.stop_trigger, options.num_levels) == (6, 4)


def test_the_stop_trigger_is_never_below_the_compaction_trigger():
    options = TableOptions.from_strings({"num-sorted-run.stop-trigger": "2"})
    assert options.stop_trigger == 5


def test_aliases_are_read_and_the_key_itself_wins():
    assert TableOptions.from_strings({"first-row.ignore-delete": "true"}).ignore_delete
    assert TableOptions.from_strings({"write.compaction-skip": "true"}).write_only
    both = {"ignore-delete": "false", "deduplicate.ignore-delete": "true"}
    assert not TableOptions.from_strings(both).ignore_delete


def test_options_of_one_column_are_kept_by_column():
    options = TableOptions.from_strings({"fields.a.b.stats-mode": "counts"})
    assert options.field_stats_modes == {"a.b": "counts"}


def test_values_by_level_are_read_and_checked():
    options = TableOptions.from_strings({"file.format.per.level": "0:avro, 3:parquet"})
    assert options.file_format_per_level == {0: "avro", 3: "parquet"}
    assert options.file_compression_per_level == {}
    for text in ("avro", "0", "x:avro", "0:", "-1:avro"):
        with pytest.raises(InvalidOptionError, match=r"file\.format\.per\.level"):
            TableOptions.from_strings({"file.format.per.level": text})


def test_unknown_keys_are_kept_and_logged_once(caplog):
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            options = TableOptions.from_strings({"some.new-thing": "7", "parquet.page.size": "1"})
    assert options.raw["some.new-thing"] == "7"
    assert [record.getMessage() for record in caplog.records] == [
        "unknown table option is kept and has no effect option=`some.new-thing`"
    ]


@pytest.mark.parametrize(
    "raw",
    [
        {"target-file-row-num": "0"},
        {"num-sorted-run.compaction-trigger": "0"},
        {"bucket": "0"},
        {"bucket": "two"},
        {"write-only": "maybe"},
        {"merge-engine": "dedup"},
        {"snapshot.num-retained.min": "0"},
        {"snapshot.num-retained.min": "5", "snapshot.num-retained.max": "4"},
    ],
)
def test_values_that_make_no_sense_are_refused(raw):
    with pytest.raises(InvalidOptionError):
        TableOptions.from_strings(raw)


@pytest.mark.parametrize(
    "raw",
    [{"sequence.snapshot-ordering": "true"}, {"type": "lance-table"}, {"type": "format-table"}],
)
def test_what_is_not_implemented_is_refused_by_name(raw):
    options = TableOptions.from_strings({"bucket": "1", **raw})
    for require in (require_writable, require_readable):
        with pytest.raises(UnsupportedFeatureError, match=next(iter(raw))):
            require(options)


def test_fixed_reading_positions_stop_reading_only():
    options = TableOptions.from_strings({"bucket": "1", "scan.fallback-branch": "other"})
    require_writable(options)
    require_readable(options)


def test_harmless_options_stop_nothing():
    harmless = {
        "bucket": "4",
        "merge-engine": "deduplicate",
        "changelog-producer": "none",
        "deletion-vectors.enabled": "false",
        "sequence.auto-padding": "row-kind-flag",
        "sequence.field": "",
        "ignore-delete": "true",
        "sort-engine": "min-heap",
        "file-index.bloom-filter.columns": "a,b",
        "fields.a.aggregate-function": "sum",
        "who.knows": "x",
    }
    options = TableOptions.from_strings(harmless)
    require_writable(options)
    require_readable(options)


def test_only_plain_deduplication_keeps_the_last_row_only():
    assert _options().keeps_last_row_only
    assert TableOptions.from_strings({"ignore-delete": "true"}).keeps_last_row_only
    for raw in (
        {"merge-engine": "aggregation"},
        {"sequence.field": "ts"},
        {"ignore-update-before": "true"},
        {"changelog-producer": "input"},
    ):
        assert not TableOptions.from_strings(raw).keeps_last_row_only


def test_options_pickle():
    options = TableOptions.from_strings({"bucket": "3", "x": "y"})
    assert pickle.loads(pickle.dumps(options)) == options


def test_the_table_is_consistent():
    keys = [key for row in TABLE_OPTIONS for key in (row.key, *row.aliases)]
    assert len(keys) == len(set(keys))
    attributes = {field.name for field in dataclasses.fields(TableOptions)} - {"raw"}
    assert {row.attribute for row in TABLE_OPTIONS if row.attribute} == attributes
    for row in TABLE_OPTIONS:
        assert row.treatment is Treatment.HONOUR or not row.attribute, row.key
        assert row.doc.endswith("."), row.key
        assert row.default is None or row.value(row.default) is not None
        if "<" not in row.key:
            assert find_option(row.key) is row


def test_options_md_is_up_to_date(capsys):
    page = pathlib.Path(options_module.__file__).parents[2] / "docs/reference/table-options.md"
    assert page.read_text(encoding="utf-8") == options_page(), "run `make docs`"
    assert main(["--check"]) == 0
    assert capsys.readouterr().err == ""
