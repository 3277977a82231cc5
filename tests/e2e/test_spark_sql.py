# SPDX-License-Identifier: Apache-2.0
"""`lakeward_sql`: queries on Spark, other statements through our own front end."""

import pytest

from changelog.spark_source.sql import lakeward_sql
from storage.catalog.catalog import FileSystemCatalog
from storage.errors import NotFoundError
from tests.table_kit import make_table, write

pytestmark = pytest.mark.spark


def test_statements_of_a_spark_session(spark, tmp_path):
    table = make_table(tmp_path)
    write(table, 1, [("+I", 1, "a"), ("+I", 2, "b")])
    write(table, 2, [("+U", 2, "B"), ("+I", 3, "c")])
    sql = lakeward_sql(spark, FileSystemCatalog(str(tmp_path)), "db")
    found = sql("SELECT v, k + 1 AS n FROM t WHERE k > 1 ORDER BY k").collect()
    assert [tuple(row) for row in found] == [("B", 3), ("c", 4)]
    old = sql("SELECT x.v FROM t /*+ OPTIONS('scan.snapshot-id' = '1') */ x WHERE x.k = 2")
    assert [row.v for row in old.collect()] == ["b"]
    joined = sql("SELECT a.k FROM t VERSION AS OF 1 a LEFT ANTI JOIN t b ON a.v = b.v")
    assert [row.k for row in joined.collect()] == [2]
    with_names = "WITH t AS (SELECT k FROM t WHERE k = 3) SELECT count(*) AS c FROM t"
    assert [row.c for row in sql(with_names).collect()] == [1]
    snapshots = sql("SELECT max(snapshot_id) AS m FROM t$snapshots")
    assert [row.m for row in snapshots.collect()] == [2]
    assert [row.table_name for row in sql("SHOW TABLES").collect()] == ["t"]
    assert [row.affected for row in sql("SET 'a' = 'b'").collect()] == [0]
    with pytest.raises(NotFoundError) as raised:
        sql("SELECT * FROM tt")
    assert raised.value.context["column"] == 15
    assert not [view for view in spark.catalog.listTables() if view.name.startswith("lakeward_")]
