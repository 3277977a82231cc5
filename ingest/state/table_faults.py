# SPDX-License-Identifier: Apache-2.0
"""Which failures park one table instead of ending the stream. Reads the warehouse, changes nothing.

A failure parks its table if a retry cannot fix it and it concerns that table alone: bytes of the
table that violate the format, contradicting options or schema, a missing table, a missing file that
the newest snapshot names (one that only older snapshots name may have expired). It never does so

* for the quarantine table, without which records would be lost;
* for transient faults, lost races, refused credentials, a newer writer, bugs: those are the
  store's, the stream's or ours, and parking tables for them would stop everything silently;
* when several tables of the batch fail and none succeeds, or the warehouse does not answer for the
  quarantine table: then it does not concern one table.
"""

from collections.abc import Callable, Collection, Mapping

from storage.errors import CorruptDataError, InvalidRequestError, NotFoundError
from storage.table.commit.live_files import live_entries
from storage.table.table import FileStoreTable

TABLE_FAULTS = (CorruptDataError, InvalidRequestError, NotFoundError)
"""Errors that can concern one table."""

_REASON_LENGTH = 500


def faults_to_park(
    failures: Mapping[str, BaseException],
    tables: Collection[str],
    *,
    quarantine: str,
    answers: Callable[[], bool],
) -> dict[str, str]:
    """The tables to park, with reasons.

    Args:
        failures: what failed, by table.
        tables: all tables of the batch, those that succeeded too.
        quarantine: the quarantine table.
        answers: whether the warehouse answers; called only when it matters.

    Raises:
        BaseException: the first failure that must end the query.
    """
    if not failures:
        return {}
    for name in sorted(failures):
        error = failures[name]
        if name == quarantine or not isinstance(error, TABLE_FAULTS):
            raise error
    successes = [name for name in tables if name not in failures]
    if (len(failures) > 1 and not successes) or not answers():
        raise failures[min(failures)]
    return {name: reason_of(error) for name, error in failures.items()}


def lost_file(table: FileStoreTable, error: FileNotFoundError) -> CorruptDataError | None:
    """The table's fault, if the missing file is one that it still needs.

    Reads the newest snapshot's manifests.
    """
    missing = str(error.filename or "")
    try:
        snapshot = table.latest().latest_snapshot()
        entries = [] if snapshot is None else live_entries(table, snapshot)
        names = {entry.file.file_name for entry in entries}
        if snapshot is not None:  # manifests may have come from a cache
            names |= {snapshot.base_manifest_list, snapshot.delta_manifest_list}
        needed = missing.rsplit("/", 1)[-1] in names
    except FileNotFoundError:  # not even the newest snapshot can be read
        needed = True
    if not needed:
        return None
    return CorruptDataError(
        "a file that the table needs is missing", hint="restore the file", path=missing
    )


def reason_of(error: BaseException) -> str:
    """One line for people."""
    text = f"{type(error).__name__}: {error}".split("\n", maxsplit=1)[0]
    return text if len(text) <= _REASON_LENGTH else text[: _REASON_LENGTH - 1] + "…"
