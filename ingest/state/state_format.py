# SPDX-License-Identifier: Apache-2.0
"""The version of what a stream keeps in and beside its tables; refusing what is not of ours.

    version   what is new
    1         checkpoint's state file, progress note, list of parked tables
    2         the progress note is in the records of the owner (`ingest.state.ownership`)

A version is raised when an older Lakeward could not go on with the state without loss. Members that
older ones may leave out need no new version.
"""

from storage.errors import CorruptDataError, InvalidRequestError
from storage.format.metadata.snapshot import Snapshot

__all__ = ["STATE_FORMAT", "StateFormatError", "require_known_format", "unreadable_property"]

STATE_FORMAT = 2
"""What this version writes; it reads all before."""


class StateFormatError(InvalidRequestError):
    """The state is of a later version. Operator action: install that version, or a later one."""


def require_known_format(version: int, path: str) -> None:
    """Refuse state of a later version.

    Raises:
        StateFormatError: it is.
    """
    if version > STATE_FORMAT:
        raise StateFormatError(
            f"the stream's state has format {version}, this Lakeward knows formats up to "
            f"{STATE_FORMAT}",
            hint="a newer Lakeward has run this stream: install that version again. Going back is "
            "possible only with the warehouse's and checkpoint's state from before the upgrade",
            path=path,
            format=version,
        )


def unreadable_property(what: str, snapshot: Snapshot, text: str) -> CorruptDataError:
    """The error for a property of a snapshot whose value is not what Lakeward writes.

    Args:
        what: the property tells, such as "epoch".
        snapshot: that has it.
        text: the value.
    """
    return CorruptDataError(
        f"a snapshot's {what} cannot be read",
        hint="another program changed it: `lakeward table rollback` to the snapshot before",
        snapshot=snapshot.id,
        value=text,
    )
