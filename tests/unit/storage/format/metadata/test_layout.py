# SPDX-License-Identifier: Apache-2.0
import decimal

import pytest

from storage.errors import UnsupportedFeatureError
from storage.format.metadata.layout import TableLayout, escape, partition_path, unescape
from storage.format.row.binary_row import Timestamp
from storage.format.types.types import DataField, parse_type

LAYOUT = TableLayout("/w/d.db/t")


def field(name, type_):
    return DataField(id=0, name=name, type=parse_type(type_))


def test_branches_share_everything_but_their_metadata():
    branch = TableLayout("/w/d.db/t", branch="b")
    assert branch.snapshot_file(3) == "/w/d.db/t/branch/branch-b/snapshot/snapshot-3"
    assert branch.schema_file(0) == "/w/d.db/t/branch/branch-b/schema/schema-0"
    assert branch.tag_file("x") == "/w/d.db/t/branch/branch-b/tag/tag-x"
    for shared in ("manifest_dir", "index_dir", "statistics_dir", "data_root"):
        assert getattr(branch, shared) == getattr(LAYOUT, shared)


def test_paths_of_buckets():
    assert LAYOUT.bucket_dir("", 0) == "/w/d.db/t/bucket-0"
    assert LAYOUT.bucket_dir("p=1", -2) == "/w/d.db/t/p=1/bucket-postpone"
    assert LAYOUT.data_file("p=1/q=2", 3, "f") == "/w/d.db/t/p=1/q=2/bucket-3/f"
    moved = TableLayout("/t", data_directory="data")
    assert moved.bucket_dir("", 0) == "/t/data/bucket-0"


def test_partition_keys_nest_in_order():
    fields = [field("day", "DATE"), field("region", "STRING")]
    assert partition_path([19857, "eu/west"], fields) == "day=19857/region=eu%2Fwest"
    assert partition_path([], []) == ""
    assert partition_path([None, "x"], fields, default_name="none") == "day=none/region=x"


@pytest.mark.parametrize(
    ("type_", "value", "legacy", "cast"),
    [
        ("DATE", 2932897, "2932897", "+10000-01-01"),
        ("DATE", -719529, "-719529", "-0001-12-31"),
        ("DATE", 11016, "11016", "2000-02-29"),
        ("TIME(0)", 3_723_000, "3723000", "01%3A02%3A03"),
        ("TIMESTAMP(9)", Timestamp(1, 5), "1970-01-01T00%3A00%3A00.001000005",
         "1970-01-01 00%3A00%3A00.001000005"),
        ("TIMESTAMP(6)", Timestamp(-1, 999000), "1969-12-31T23%3A59%3A59.999999",
         "1969-12-31 23%3A59%3A59.999999"),
        ("DOUBLE", float("nan"), "NaN", "NaN"),
        ("DOUBLE", -float("inf"), "-Infinity", "-Infinity"),
        ("DOUBLE", -0.0, "-0.0", "-0.0"),
        ("DOUBLE", 1.25e7, "1.25E7", "1.25E7"),
        ("FLOAT", 0.1, "0.1", "0.1"),
        ("DECIMAL(20, 10)", decimal.Decimal("1E-10"), "1E-10", "1E-10"),
        ("DECIMAL(20, 10)", decimal.Decimal("-12.5E-9"), "-1.25E-8", "-1.25E-8"),
        ("BOOLEAN", False, "false", "false"),
        ("STRING", "\u00a0", "\u00a0", "\u00a0"),
        ("STRING", "\t ", "__DEFAULT_PARTITION__", "__DEFAULT_PARTITION__"),
    ],
)  # fmt: skip
def test_values_as_java_prints_them(type_, value, legacy, cast):
    fields = [field("p", type_)]
    assert partition_path([value], fields) == f"p={legacy}"
    assert partition_path([value], fields, legacy=False) == f"p={cast}"


def test_bytes_have_no_legacy_name():
    fields = [field("p", "BYTES")]
    with pytest.raises(UnsupportedFeatureError, match="legacy-name"):
        partition_path([b"x"], fields)
    assert partition_path([b"x"], fields, legacy=False) == "p=x"


def test_escaping_is_undone():
    text = 'a/b c=%"{}^\x01é'
    assert "/" not in escape(text)
    assert unescape(escape(text)) == text
    assert unescape("100%") == "100%"
