# SPDX-License-Identifier: Apache-2.0
"""Carries the steps of a generated case out, by us or by a peer, and compares what it holds."""

import dataclasses
import pathlib
from collections.abc import Callable, Sequence

import pyarrow as pa

from storage.catalog.catalog import FileSystemCatalog
from storage.clock import ManualClock, SeededIds
from storage.format.metadata.schema import TableSchema, new_schema
from storage.format.types.types import DataField
from storage.io.local import LocalFileIO
from storage.table.scan.predicate import In
from storage.table.table import FileStoreTable
from storage.table.write.rows.row_changes import delete_where
from tests.golden.values import arrow_rows, difference
from tests.interop.generated_tables import Alter, Case, Delete, Step, Write
from tests.interop.java_peer import JavaPeer
from tests.interop.model import Model
from tests.interop.spark_peer import SparkPeer
from tests.table_kit import write

__all__ = [
    "assert_holds",
    "compact_by_us",
    "created_by_us",
    "leaves_compaction",
    "schema_of",
    "step_by_java",
    "step_by_spark",
    "step_by_us",
    "written_by_us",
]


def leaves_compaction(case: Case) -> bool:
    """Whether we leave the compaction of a case to a peer; rows are invisible until then."""
    return _has_vectors(case) and case.number % 2 == 1


def _has_vectors(case: Case) -> bool:
    return bool(case.keys) and case.dimensions["deletion-vectors"] != "off"


def schema_of(case: Case) -> TableSchema:
    """Schema 0 of a case's table."""
    return new_schema(
        list(case.columns),
        primary_keys=case.keys,
        partition_keys=case.partitions,
        options=case.options,
        now_ms=0,
    )


def created_by_us(warehouse: pathlib.Path, name: str, case: Case) -> FileStoreTable:
    """The case's table, made by Lakeward; `write-only` where a peer has to compact."""
    schema = schema_of(case)
    if leaves_compaction(case):
        schema = dataclasses.replace(schema, options={**schema.options, "write-only": "true"})
    catalog = FileSystemCatalog(
        str(warehouse),
        file_io=LocalFileIO(durable=False),
        clock=ManualClock(),
        ids=SeededIds(case.number),
    )
    return catalog.create_table(name, schema)


def written_by_us(
    warehouse: pathlib.Path, name: str, case: Case, compact: Callable[[], None]
) -> tuple[FileStoreTable, Model]:
    """The case's table after all of its steps, and what it holds.

    Args:
        warehouse: where.
        name: `database.table`.
        case: the case.
        compact: compaction by a peer, for tables that we do not compact.
    """
    model = Model(case)
    table = created_by_us(warehouse, name, case)
    for number, step in enumerate(case.steps):
        table = step_by_us(table, number, step, case)
        model.apply(step)
        if leaves_compaction(case) and isinstance(step, Write):
            compact()
    return table, model


def step_by_us(table: FileStoreTable, number: int, step: Step, case: Case) -> FileStoreTable:
    """Carry one step out with Lakeward; returns the table in its newest schema.

    Compactions that we leave to a peer are left to the caller.
    """
    match step:
        case Write(rows=rows, compaction=compaction):
            leaves = leaves_compaction(case)
            if rows:
                flat = [(kind, *values) for kind, values in rows]
                compacts = compaction != "none" or _has_vectors(case)
                if leaves:
                    compacts = table.options.write_only  # then nothing is due
                write(table, number, flat, user="us", compaction=compacts)
            if compaction == "full" and not leaves:
                compact_by_us(table, number)
        case Delete(ids=ids):
            delete_where(table, In("id", tuple(sorted(ids))), "us", identifier=number)
        case Alter(change=change):
            return table.alter([change])
    return table


def compact_by_us(table: FileStoreTable, number: int) -> None:
    """Compact every bucket fully and commit."""
    with table.new_write("us-compact") as writer:
        writer.compact(full=True)
        messages = writer.prepare_commit()
    table.new_commit("us-compact").commit(messages, number)


def step_by_java(peer: JavaPeer, name: str, step: Step) -> None:
    """Carry one step out with Java."""
    match step:
        case Write(rows=rows, compaction=compaction):
            if rows:
                peer.write(name, rows, compaction=compaction != "none")
            if compaction == "full":
                peer.compact(name)
        case Delete(ids=ids):
            peer.delete(name, "id", ids)
        case Alter(change=change):
            peer.alter(name, [change])


def step_by_spark(peer: SparkPeer, name: str, case: Case, model: Model, step: Step) -> None:
    """Carry one step out with Spark SQL; the model stands before the step."""
    match step:
        case Write(rows=rows, compaction=compaction):
            if rows:
                peer.write(name, model.fields(), case.keys, rows)
            if compaction == "full":
                peer.compact(name)
        case Delete(ids=ids):
            peer.delete(name, "id", sorted(ids))
        case Alter(change=change):
            peer.alter(name, change)


def assert_holds(
    who: str, found: pa.Table, fields: Sequence[DataField], model: Model, case: Case
) -> None:
    """Fail unless a table holds exactly the model's rows, columns in the model's order."""
    assert [field.name for field in fields] == model.names, f"{who}: columns of {case.name}"
    text = difference(model.rows(), arrow_rows(found, fields))
    assert text is None, f"{who} on {case.name} (seed in the header): {text}"
