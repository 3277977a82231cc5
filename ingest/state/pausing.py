# SPDX-License-Identifier: Apache-2.0
"""A stream that a person paused: it reads nothing until it is resumed, restarts included.

`<warehouse>/.lakeward/<stream>/paused.json` is there while it is paused, and says why.
The daemon lives on: it answers requests, and tables are looked after. The batch that is planned
when the pause is asked for is finished; nothing is lost, the source keeps its place.
"""

import dataclasses

import orjson

from ingest.config.stream_folder import stream_folder
from ingest.state.state_format import STATE_FORMAT, StateFormatError, require_known_format
from storage.errors import CorruptDataError
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
    """The file and what it says. Changes are durable when the call returns.

    Args:
        file_io: store of the warehouse.
        warehouse: its root.
        stream: the stream's name.
    """

    def __init__(self, file_io: FileIO, warehouse: str, stream: str) -> None:
        self._io = file_io
        self.path = f"{stream_folder(warehouse, stream)}/paused.json"
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
        try:
            data = self._io.read_bytes(self.path)
        except FileNotFoundError:
            self._pause = None
            return None
        try:
            raw = orjson.loads(data)
            require_known_format(int(raw["version"]), self.path)
            self._pause = Pause(reason=str(raw["reason"]), since_ms=int(raw["since_ms"]))
        except StateFormatError:
            raise
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptDataError(
                "the note that the stream is paused cannot be read",
                hint="remove it and the stream goes on",
                path=self.path,
            ) from error
        return self._pause

    def set(self, reason: str, *, now_ms: int) -> bool:
        """Pause; False if it was paused already: then nothing changes."""
        if self._pause is not None:
            return False
        pause = Pause(reason=reason, since_ms=now_ms)
        raw = {"version": STATE_FORMAT, **dataclasses.asdict(pause)}
        self._io.overwrite_bytes(self.path, orjson.dumps(raw, option=orjson.OPT_SORT_KEYS))
        self._pause = pause
        return True

    def clear(self) -> bool:
        """Resume; False if it was not paused."""
        if self._pause is None:
            return False
        self._io.delete(self.path)
        self._pause = None
        return True
