# SPDX-License-Identifier: Apache-2.0
"""Apache Paimon's Spark connector: it reads what we write, and we read what it writes.

The cases keep to what Spark SQL and the connector's 0.9 know; everything newer is covered through
the Java classes of the newest release (`test_java_reads_us`, `test_we_read_java`).
"""

import pytest

from storage.table.table import FileStoreTable
from tests.interop.carry_out import (
    assert_holds,
    step_by_spark,
    written_by_us,
)
from tests.interop.generated_tables import Case, Write, cases
from tests.interop.model import Model
from tests.interop.quirks import quirk_of
from tests.interop.selection import parameters
from tests.interop.spark_peer import SparkPeer

pytestmark = [pytest.mark.interop, pytest.mark.full]


@pytest.mark.parametrize("case", parameters(cases(spark=True), quick=()))
def test_spark_reads_what_we_wrote(spark: SparkPeer, case: Case) -> None:
    quirk = quirk_of("spark", case)
    if quirk is not None:
        pytest.skip(f"Spark: {quirk}")
    name = f"db.by_us_{case.number}"
    table, model = written_by_us(spark.warehouse, name, case, lambda: spark.compact(name))
    fields = table.schema.fields
    assert_holds("Spark", spark.read(name, fields), fields, model, case)
    if not _compactable(case):
        return
    spark.compact(name)
    assert_holds("Spark after its compaction", spark.read(name, fields), fields, model, case)
    assert_holds("us after Spark's compaction", table.to_arrow(), fields, model, case)


def _compactable(case: Case) -> bool:
    """The procedure of the connector's 0.9 refuses cross-partition tables."""
    return case.dimensions["table"] != "pk-cross"


@pytest.mark.parametrize("case", parameters(cases(spark=True), quick=()))
def test_we_read_what_spark_wrote(spark: SparkPeer, case: Case) -> None:
    name = f"db.by_spark_{case.number}"
    spark.create(name, case)
    model = Model(case)
    for step in case.steps:
        if not _compactable(case) and isinstance(step, Write) and not step.rows:
            continue
        step_by_spark(spark, name, case, model, step)
        model.apply(step)
    table = FileStoreTable.open(str(spark.warehouse / "db.db" / name.partition(".")[2]))
    fields = table.schema.fields
    assert_holds("us", table.to_arrow(), fields, model, case)
    assert_holds("Spark", spark.read(name, fields), fields, model, case)
    if _compactable(case):
        spark.compact(name)
        assert_holds("us after Spark's compaction", table.to_arrow(), fields, model, case)
