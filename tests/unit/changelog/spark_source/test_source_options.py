# SPDX-License-Identifier: Apache-2.0
"""What the options of `format("lakeward")` mean."""

import pytest

from changelog.spark_source.source_options import (
    LIMITS,
    READ_OPTIONS,
    WRITE_OPTIONS,
    SourceOptions,
)
from storage.errors import InvalidOptionError, InvalidRequestError, NotFoundError
from storage.table.branches import create_branch
from storage.table.scan.predicate import Compare, Op
from tests.table_kit import make_table, write


@pytest.mark.parametrize(
    ("name", "plain", "branch", "system"),
    [
        ("db.t", "db.t", None, None),
        ("db.t$branch_dev", "db.t", "dev", None),
        ("db.t$snapshots", "db.t", None, "snapshots"),
        ("db.t$branch_dev$files", "db.t", "dev", "files"),
    ],
)
def test_marks_of_a_name(name, plain, branch, system):
    by_name = SourceOptions.parse({"warehouse": "/lake", "table": name})
    assert (by_name.table, by_name.branch, by_name.system_table) == (plain, branch, system)
    by_path = SourceOptions.parse({"path": f"/lake/$odd/{name}"})
    assert (by_path.path, by_path.branch) == (f"/lake/$odd/{plain}", branch)


def test_columns_filter_and_table_options():
    found = SourceOptions.parse(
        {
            "PATH": "/t",
            "columns": "a, `b c`",
            "filter": "a > 5",
            "Scan.Snapshot-Id": "3",
            "s3.region": "eu",
            "checkpointLocation": "/c",
        }
    )
    assert found.columns == ("a", "b c")
    assert found.predicate == Compare(Op.GT, "a", 5)
    assert found.table_options == {"scan.snapshot-id": "3"}
    assert found.store_options == {"s3.region": "eu"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "no table given"),
        ({"warehouse": "/lake"}, "missing=`table`"),
        ({"path": "/t", "table": "db.t"}, "conflicting options"),
        ({"path": "/t$branch_"}, "not a table name"),
        ({"path": "/t$a$b"}, "not a table name"),
        ({"path": "/t", "column": "a"}, "did you mean `columns`"),
        ({"path": "/t", "columns": "a,,b"}, "empty or duplicate column"),
        ({"path": "/t", "filter": "a >"}, "a filter cannot be parsed"),
    ],
)
def test_mistakes_are_named(options, message):
    with pytest.raises(InvalidRequestError, match=message):
        SourceOptions.parse(options)


def test_numbers_and_flags():
    found = SourceOptions.parse(
        {
            "path": "/t",
            "max.rows.per.trigger": "0",
            "max.snapshots.per.trigger": " 7 ",
            "read.changelog": "yes",
        }
    )
    assert found.count("max.snapshots.per.trigger") == 7
    assert found.count("commit.identifier") is None
    with pytest.raises(InvalidOptionError, match="not positive"):
        found.count("max.rows.per.trigger")
    with pytest.raises(InvalidOptionError, match="neither true nor false"):
        assert found.reads_changelog


def test_a_table_is_opened_by_path_or_name_at_its_branch(tmp_path):
    table = make_table(tmp_path)
    write(table, 1, [("+I", 1, "a")])
    create_branch(table, "dev", snapshot_id=1)
    path = f"{table.layout.root}$branch_dev"
    assert SourceOptions.parse({"path": path}).open().layout.branch == "dev"
    named = {"warehouse": str(tmp_path), "table": "db.t$branch_dev", "bucket-key": "k"}
    with pytest.raises(InvalidOptionError, match="bucket-key"):
        SourceOptions.parse(named).open()
    del named["bucket-key"]
    assert SourceOptions.parse(named).open().layout.branch == "dev"
    with pytest.raises(NotFoundError):
        SourceOptions.parse({"warehouse": str(tmp_path), "table": "db.other"}).open()


def test_options_that_would_be_ignored_are_refused():
    found = SourceOptions.parse({"path": "/t", "commit.user": "u", "columns": "a"})
    found.refuse(LIMITS, "a batch read")
    with pytest.raises(InvalidOptionError, match=r"a batch read has no .* key=`commit\.user`"):
        found.refuse(WRITE_OPTIONS, "a batch read")
    with pytest.raises(InvalidOptionError, match=r"a write has no .* key=`columns`"):
        found.refuse(READ_OPTIONS, "a write")
