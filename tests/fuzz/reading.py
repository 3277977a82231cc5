# SPDX-License-Identifier: Apache-2.0
"""Reads everything a table has, as one comparable value, and says how a damaged one fared.

Run as a child process, so that a reader which brings the interpreter down is seen and counted:
one damage per line on the standard input, one outcome per line on the standard output.
"""

import functools
import hashlib
import json
import logging
import os
import pathlib
import sys
from collections.abc import Callable

import pandas as pd  # noqa: F401 - pyarrow would import it in each forked child
import pyarrow as pa

from storage.errors import LakewardError
from storage.format.metadata.file_meta import IndexType
from storage.io.local import LocalFileIO
from storage.table.commit.live_files import index_files, read_hash_index
from storage.table.inspect.statistics import read_statistics
from storage.table.retention.consumers import all_consumers
from storage.table.retention.reachability import branch_names
from storage.table.scan.predicate import Predicate, parse_predicate
from storage.table.table import FileStoreTable
from storage.table.tags import all_tags
from tests.changelog_kit import read_snapshot_changelog

__all__ = ["CRASH", "DIFFERENT", "KILLED", "REFUSED", "SAME", "everything", "outcome"]

SAME, REFUSED, DIFFERENT, CRASH, KILLED = "same", "refused", "different", "crash", "killed"


def everything(table_directory: pathlib.Path, filters: list[str]) -> dict[str, str]:
    """A digest per way of reading the table.

    Args:
        table_directory: of the table.
        filters: texts of predicates to read with, so that indexes and statistics are used.

    Raises:
        LakewardError: as reading does.
    """
    table = FileStoreTable.open(str(table_directory), LocalFileIO(durable=False))
    found = {"latest": _digest(table.to_arrow())}
    for snapshot_id in table.snapshots.ids():
        found[f"snapshot {snapshot_id}"] = _digest(table.to_arrow(snapshot=snapshot_id))
        found[f"changes {snapshot_id}"] = _digest(read_snapshot_changelog(table, snapshot_id))
    for text in filters:
        predicate: Predicate = parse_predicate(text)
        found[f"where {text}"] = _digest(table.to_arrow(filter=predicate))
    for tag in all_tags(table):
        found[f"tag {tag.name}"] = _digest(table.to_arrow(tag=tag.name))
    for branch in branch_names(table):
        found[f"branch {branch}"] = _digest(table.at_branch(branch).to_arrow())
    newest = table.latest_snapshot()
    for kind in IndexType:
        found[f"{kind} files"] = str(sorted(index_files(table, newest, kind).items()))
    for (partition, bucket), files in index_files(table, newest, IndexType.HASH).items():
        hashes = [read_hash_index(table, partition, bucket, file).tolist() for file in files]
        found[f"hashes {partition.hex()} {bucket}"] = str(hashes)
    found["statistics"] = repr(read_statistics(table))
    found["consumers"] = repr(sorted(all_consumers(table).items()))
    return found


def _digest(rows: pa.Table) -> str:
    """Of the rows as a multiset."""
    digests = sorted(hashlib.md5(repr(row).encode()).digest() for row in rows.to_pylist())
    return hashlib.md5(b"".join(digests)).hexdigest()


def outcome(directory: pathlib.Path, filters: list[str], truth: dict[str, str]) -> tuple[str, str]:
    """What reading a damaged table gave.

    Returns:
        `same`, `refused` (a typed error), `different` or `crash` (another error), and what.
    """
    try:
        found = everything(directory, filters)
    except (LakewardError, FileNotFoundError) as error:
        return REFUSED, f"{type(error).__name__}: {error}"
    except Exception as error:
        return CRASH, f"{type(error).__name__}: {error}"
    differing = sorted(key for key in truth if found.get(key) != truth[key])
    differing += sorted(set(found) - set(truth))
    return (DIFFERENT, ", ".join(differing[:3])) if differing else (SAME, "")


def _main() -> None:
    """Protocol: {"table", "filters"} names a table; its truth comes back. Then one damage per line.

    Every reading is made by a forked child, so that nothing it would remember hides the damage.
    """
    logging.disable()
    for line in sys.stdin:
        told = json.loads(line)
        if "table" in told:
            directory, filters = pathlib.Path(told["table"]), told["filters"]
            truth = json.loads(_apart(functools.partial(everything, directory, filters)))
            _say(json.dumps(truth))
            continue
        path = directory / told["path"]
        sound = path.read_bytes()
        try:
            path.write_bytes(bytes.fromhex(told["content"]))
            answer = _apart(functools.partial(outcome, directory, filters, truth))
        finally:
            path.write_bytes(sound)
        _say(answer)


def _apart(work: Callable[[], object]) -> str:
    """What `work` returns in a forked child, as JSON; how the child died if it did."""
    source, sink = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(source)
        with os.fdopen(sink, "w", encoding="utf-8") as output:
            output.write(json.dumps(work()))
        os._exit(0)
    os.close(sink)
    with os.fdopen(source, encoding="utf-8") as input_:
        answer = input_.read()
    _, status = os.waitpid(child, 0)
    return answer if status == 0 else json.dumps([KILLED, f"wait status {status}"])


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    _main()
