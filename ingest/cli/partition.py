# SPDX-License-Identifier: Apache-2.0
"""`lakeward table drop-partition|truncate|overwrite`: rows go, or others take their place.

One OVERWRITE commit each, safe beside a daemon: what is live when it commits goes, and what others
commit later stays. Old snapshots still have the rows until they expire.
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import csv, dataset, json

from ingest.cli.argument_values import parse_partition
from ingest.cli.table_arguments import (
    add_dry_run,
    add_partitions,
    add_verb,
    emit,
    table_of,
    tell,
)
from ingest.observe.text_table import human_size
from storage.errors import InvalidRequestError
from storage.table.table import FileStoreTable
from storage.table.write.drop_partitions import (
    PartitionFiles,
    drop_partitions,
    live_partitions,
    overwrite_rows,
    truncate,
)

__all__ = ["add_partition_commands"]

_OVERWRITE = """\
Puts the rows of a file (Parquet, JSON lines or CSV with a head line; by its extension) in the place
of those of the table, or of a partition. With `dynamic-partition-overwrite` (the default) a
partitioned table loses the partitions that get rows; with --partition exactly that one, and every
row must belong to it."""

_OVERWRITE_EXAMPLES = """\
  lakeward table overwrite /data/warehouse shop.rates rates.csv
  lakeward table overwrite /data/warehouse shop.orders fixed.parquet --partition dt=2024-01-31
"""
_DROP_EXAMPLES = """\
  lakeward table drop-partition /data/warehouse shop.orders --partition dt=2024-01-31 --dry-run
  lakeward table drop-partition /data/warehouse shop.orders --partition dt=a,h=1 --partition dt=b
"""
_HEAD = ["partition", "files", "rows", "size"]


def add_partition_commands(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verbs; each sets `run`."""
    drop = add_verb(
        verbs, "drop-partition", "remove the rows of partitions", _drop, examples=_DROP_EXAMPLES
    )
    text = "partitions with these values; may be repeated"
    add_partitions(drop, text, required=True)
    add_dry_run(drop)
    empty = add_verb(verbs, "truncate", "remove all rows", _truncate)
    add_dry_run(empty)
    overwrite = add_verb(
        verbs,
        "overwrite",
        "put other rows in the place of those of a table or partition",
        _overwrite,
        details=_OVERWRITE,
        examples=_OVERWRITE_EXAMPLES,
    )
    overwrite.add_argument("file", type=Path, help="the rows: .parquet, .json, .jsonl or .csv")
    overwrite.add_argument(
        "--partition",
        type=parse_partition,
        metavar="COLUMN=VALUE[,…]",
        help="the partition that they replace",
    )


def _drop(arguments: argparse.Namespace) -> int:
    table = table_of(arguments)
    found = live_partitions(table, arguments.partition)
    if not arguments.dry_run and found:
        drop_partitions(table, arguments.partition)
    return _told(arguments, found, "no such partition has rows", "dropped")


def _truncate(arguments: argparse.Namespace) -> int:
    table = table_of(arguments)
    found = live_partitions(table)
    if not arguments.dry_run and found:
        truncate(table)
    return _told(arguments, found, "the table has no rows", "emptied")


def _told(
    arguments: argparse.Namespace, found: Sequence[PartitionFiles], nothing: str, done: str
) -> int:
    rows: list[list[Any]] = [
        [one.name, one.files, one.rows, one.size if arguments.json else human_size(one.size)]
        for one in found
    ]
    emit(arguments, _HEAD, rows, nothing)
    if found and not arguments.json:
        text = "nothing was changed" if arguments.dry_run else f"{len(found)} partitions {done}"
        print(f"({text})")
    return 0


def _overwrite(arguments: argparse.Namespace) -> int:
    table = table_of(arguments)
    rows, result = overwrite_rows(
        table, _batches(arguments.file, table), partition=arguments.partition
    )
    text = f"{rows:,} rows, snapshot {result.append_snapshot_id}"
    facts = {"rows": rows, "snapshot": result.append_snapshot_id}
    return tell(arguments, text, facts)


def _batches(path: Path, table: FileStoreTable) -> Iterator[pa.RecordBatch]:
    """Rows of a file with the columns of a table."""
    schema = table.schema.arrow_schema
    if not path.is_file():
        raise InvalidRequestError("there is no such file", path=path)
    try:
        for batch in _read(path, schema):
            missing = sorted(set(schema.names) - set(batch.schema.names))
            if missing:
                raise InvalidRequestError(
                    "the file lacks a column of the table", path=path, column=missing[0]
                )
            yield batch.select(schema.names).cast(schema)
    except (ValueError, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise InvalidRequestError(
            "rows of the file do not fit the table", detail=str(error), path=path
        ) from error


def _read(path: Path, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    match path.suffix.lower():
        case ".parquet":
            yield from dataset.dataset(path, format="parquet").to_batches()
        case ".csv":
            types = csv.ConvertOptions(column_types=schema, strings_can_be_null=True)
            yield from csv.open_csv(path, convert_options=types)
        case ".json" | ".jsonl" | ".ndjson":
            options = json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
            yield from json.read_json(path, parse_options=options).to_batches()
        case other:
            raise InvalidRequestError(
                "files of this kind are not read", hint="use .parquet, .jsonl or .csv", kind=other
            )
