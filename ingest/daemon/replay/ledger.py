# SPDX-License-Identifier: Apache-2.0
"""What a replay is about to commit, so that no record is applied twice whatever happens.

`<warehouse>/.lakeward/<stream>/replay.json` is written before the first commit: per table the
identifier of the commit of `<stream>.replay` and the records in it. It goes when the records are
marked in the quarantine table. A replay that begins and finds one settles it first: a table that
has the identifier has the records, so these are marked; the others are as they were before.
"""

import dataclasses
from collections.abc import Mapping

import orjson

from ingest.config.stream_folder import stream_folder
from storage.errors import CorruptDataError
from storage.io.file_io import FileIO
from storage.table.table import FileStoreTable

__all__ = ["Ledger", "LedgerFile", "newest_identifier", "replay_user"]

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


class LedgerFile:
    """The file.

    Args:
        file_io: store of the warehouse.
        warehouse: its root.
        stream: the stream's name.
    """

    def __init__(self, file_io: FileIO, warehouse: str, stream: str) -> None:
        self._io = file_io
        self.path = f"{stream_folder(warehouse, stream)}/replay.json"

    def load(self) -> Ledger | None:
        """What an earlier replay left, or None.

        Raises:
            CorruptDataError: the file is damaged.
        """
        try:
            data = self._io.read_bytes(self.path)
        except FileNotFoundError:
            return None
        try:
            raw = orjson.loads(data)
            return Ledger(
                {name: int(number) for name, number in raw["identifiers"].items()},
                {
                    name: tuple((topic, int(p), int(o)) for topic, p, o in places)
                    for name, places in raw["records"].items()
                },
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptDataError(
                "the record of an unfinished replay cannot be read",
                hint="restore it; without it, records may be applied twice to tables that add up",
                path=self.path,
            ) from error

    def write(self, ledger: Ledger) -> None:
        """Replace it; durable at return."""
        self._io.overwrite_bytes(self.path, orjson.dumps(dataclasses.asdict(ledger)))

    def remove(self) -> None:
        """Everything is marked."""
        self._io.delete(self.path)


def replay_user(stream: str) -> str:
    """The commit user of a stream's replays."""
    return f"{stream}.replay"


def newest_identifier(table: FileStoreTable, user: str) -> int:
    """Of the user's commits in a table; -1 = there is none."""
    snapshot = table.new_commit(user).latest_of_user(user)
    return -1 if snapshot is None else snapshot.commit_identifier
