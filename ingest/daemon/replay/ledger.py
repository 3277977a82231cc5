# SPDX-License-Identifier: Apache-2.0
"""The commits that a replay is about to make, so that a record is applied once after any crash.

`<warehouse>/.lakeward/<stream>/replay.json` is written before the first commit: per table the
identifier of the commit of `<stream>.replay` and the records in it. It is deleted when the records
are marked in the quarantine table. A replay that begins and finds one resolves it first: a table
that has the identifier has the records, so these are marked; the others are as they were before.
"""

import dataclasses
from collections.abc import Mapping

from ingest.config.stream_folder import stream_folder
from ingest.state.state_file import StateFile
from storage.io.file_io import FileIO
from storage.table.table import FileStoreTable

__all__ = ["Ledger", "ledger_file", "newest_identifier", "replay_user"]

Place = tuple[str, int, int]
"""Topic, partition, offset."""


@dataclasses.dataclass(frozen=True, slots=True)
class Ledger:
    """Commits and their records.

    Attributes:
        identifiers: of the commits, by table.
        records: in them, by table.
    """

    identifiers: Mapping[str, int]
    records: Mapping[str, tuple[Place, ...]]


def ledger_file(file_io: FileIO, warehouse: str, stream: str) -> StateFile[Ledger]:
    """The file of a stream; there is none unless a replay is unfinished."""
    return StateFile(
        file_io,
        f"{stream_folder(warehouse, stream)}/replay.json",
        Ledger,
        title="the ledger of an unfinished replay",
        hint="restore it; without it, records may be applied twice to tables that aggregate",
    )


def replay_user(stream: str) -> str:
    """The commit user of a stream's replays."""
    return f"{stream}.replay"


def newest_identifier(table: FileStoreTable, user: str) -> int:
    """Of the user's commits in a table; -1 = there is none."""
    snapshot = table.new_commit(user).latest_of_user(user)
    return -1 if snapshot is None else snapshot.commit_identifier
