# SPDX-License-Identifier: Apache-2.0
"""A stream that a person paused: it reads nothing until it is resumed, restarts included.

`<warehouse>/.lakeward/<stream>/paused.json` exists while it is paused, and has the reason.
The daemon keeps running: it answers requests and maintains tables. A batch that is planned already
is finished; nothing is lost, the stream keeps its offsets.
"""

import dataclasses

from ingest.config.stream_folder import stream_folder
from ingest.state.state_file import StateFile
from storage.io.file_io import FileIO

__all__ = ["Pause", "Pausing"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Why a stream is paused.

    Attributes:
        reason: for people.
        since_ms: since when [epoch ms].
    """

    reason: str
    since_ms: int


class Pausing:
    """The file and its content. Changes are durable when the call returns."""

    def __init__(self, file_io: FileIO, warehouse: str, stream: str) -> None:
        self._file = StateFile(
            file_io,
            f"{stream_folder(warehouse, stream)}/paused.json",
            Pause,
            title="the note that the stream is paused",
            hint="remove it and the stream continues",
        )
        self._pause: Pause | None = None

    @property
    def pause(self) -> Pause | None:
        """Why the stream is paused; None = it is not."""
        return self._pause

    def load(self) -> Pause | None:
        """Read the file.

        Raises:
            CorruptDataError: it is damaged.
            StateFormatError: it is of a later version.
        """
        self._pause = self._file.read()
        return self._pause

    def set(self, reason: str, *, now_ms: int) -> bool:
        """Pause; False if it was paused already: then nothing changes."""
        if self._pause is not None:
            return False
        pause = Pause(reason=reason, since_ms=now_ms)
        self._file.write(pause)
        self._pause = pause
        return True

    def clear(self) -> bool:
        """Resume; False if it was not paused."""
        if self._pause is None:
            return False
        self._file.delete()
        self._pause = None
        return True
