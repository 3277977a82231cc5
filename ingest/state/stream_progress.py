# SPDX-License-Identifier: Apache-2.0
"""The stream's own note beside the tables: which micro-batch is being committed.

Written durably before the first table of a batch is committed, into the records of the stream's
owner (`ingest.state.ownership`). It closes a gap that table properties alone leave when a
checkpoint is lost in the middle of a commit: a table that the batch created or fed from a new
topic, and that was not reached yet, knows nothing of those offsets, while its neighbours are past
them. If every table of the note has the note's identifier, the stream goes on at the note's end; if
one has not, at its start, and the tables' floors drop what they hold already.

It also tells the next owner which tables an earlier one may still be about to commit to.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import orjson

from ingest.config.stream_folder import stream_folder
from ingest.source.ranges import initial_from_stored
from ingest.state.ownership import OwnerRecord, Ownership, newest_record
from ingest.state.stream_state import TableProgress
from storage.errors import CorruptDataError, InternalError
from storage.io.file_io import FileIO

__all__ = ["BatchNote", "ProgressFile", "read_offset_log", "recovered_offsets"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BatchNote:
    """One micro-batch on its way into the tables.

    Attributes:
        identifier: its commit identifier.
        start: source offsets where it begins, in the source's own form.
        end: source offsets where it ends.
        tables: every table it commits to.
    """

    identifier: int
    start: Mapping[str, Any]
    end: Mapping[str, Any]
    tables: tuple[str, ...]

    def raw(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "identifier": self.identifier,
            "start": dict(self.start),
            "end": dict(self.end),
            "tables": list(self.tables),
        }

    @staticmethod
    def of(raw: Mapping[str, Any]) -> "BatchNote":
        """From what `raw` made."""
        return BatchNote(
            identifier=int(raw["identifier"]),
            start=raw["start"],
            end=raw["end"],
            tables=tuple(raw["tables"]),
        )

    def missing(self, progresses: Mapping[str, TableProgress]) -> list[str]:
        """Tables that have not been committed yet."""
        return [
            name
            for name in self.tables
            if name not in progresses or progresses[name].identifier < self.identifier
        ]

    def complete(self, progresses: Mapping[str, TableProgress]) -> bool:
        """Whether all tables of the note were committed."""
        return not self.missing(progresses)


class ProgressFile:
    """Reads and writes the note.

    Args:
        file_io: store of the warehouse.
        warehouse: its root.
        stream: the stream's name.
        ownership: this process's hold on the stream; None = for reading only.
    """

    def __init__(
        self, file_io: FileIO, warehouse: str, stream: str, ownership: Ownership | None = None
    ) -> None:
        self._io = file_io
        self._warehouse = warehouse
        self._stream = stream
        self._ownership = ownership
        self.old_path = f"{stream_folder(warehouse, stream)}/progress.json"

    def write(self, note: BatchNote) -> None:
        """Make a note the newest, durably.

        Raises:
            FencedError: another process owns the stream.
        """
        if self._ownership is None:
            raise InternalError("a progress note was written without owning the stream")
        self._ownership.note(note.raw())

    def read(self) -> BatchNote | None:
        """The newest note, or None when the stream never committed.

        Raises:
            CorruptDataError: it cannot be read.
            StateFormatError: it is of a later version.
        """
        raw = self.read_raw(newest_record(self._io, self._warehouse, self._stream))
        return None if raw is None else BatchNote.of(raw)

    def read_raw(self, newest: OwnerRecord | None) -> Mapping[str, Any] | None:
        """The note in a record; a stream that never had an owner may have one of format 1."""
        if newest is not None:
            return newest.note
        try:
            data = self._io.read_bytes(self.old_path)
        except FileNotFoundError:
            return None
        try:
            raw = orjson.loads(data)
            BatchNote.of(raw)
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptDataError(
                "the stream's progress file cannot be read",
                hint="remove it: the stream then starts over and drops what its tables hold",
                path=self.old_path,
            ) from error
        return {key: value for key, value in raw.items() if key != "version"}


def recovered_offsets(
    note: BatchNote | None, progresses: Mapping[str, TableProgress]
) -> Mapping[str, Any] | None:
    """Where to start when the checkpoint is new but the tables are not; None = from the settings.

    Without a note the smallest offset of every partition over all tables is taken, and a partition
    that some table does not name is read from its beginning.
    """
    if not progresses:
        return None if note is None or note.complete(progresses) else note.start
    if note is None:
        return initial_from_stored(_stored(progresses.values()))
    return note.end if note.complete(progresses) else note.start


def _stored(progresses: Iterable[TableProgress]) -> list[Mapping[str, Any]]:
    return [progress.offsets for progress in progresses]


def read_offset_log(checkpoint: Path, batch_id: int) -> Mapping[str, Any] | None:
    """The source's end offset of a planned batch, as Spark wrote it before running the batch.

    Returns:
        The offset, or None when the log has no such batch (batch -1).
    """
    path = checkpoint / "offsets" / str(batch_id)
    if not path.exists():
        return None
    lines = path.read_text(encoding="utf-8").splitlines()
    try:
        raw = orjson.loads(lines[-1])
    except (ValueError, IndexError) as error:
        raise _damaged(path) from error
    if not isinstance(raw, dict):
        raise _damaged(path)
    return raw


def _damaged(path: Path) -> CorruptDataError:
    return CorruptDataError(
        "Spark's offset log cannot be read",
        hint="restore the checkpoint, or go on where the tables say: `lakeward run "
        "--recover-offsets`",
        path=path,
    )
