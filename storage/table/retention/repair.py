# SPDX-License-Identifier: Apache-2.0
"""Repair of the hints of a table or branch: LATEST and EARLIEST, of snapshots and changelogs.

Source: FORMAT.md §3.3. Readers and writers of this implementation check a hint before they use it;
others trust a LATEST whose successor does not exist. Correct values come from a listing. Safe
beside commits and expiry: the directory is listed again after a hint is written.
"""

import dataclasses

from storage.format.metadata.snapshot_store import listed_ids, read_hint
from storage.table.core import TableCore

_TRIES = 5


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class HintRepair:
    """One hint that was wrong.

    Attributes:
        path: of the hint file.
        recorded: its old content; None: it was missing or invalid.
        corrected: its new content; None: there is nothing to point at, so it is deleted.
    """

    path: str
    recorded: int | None
    corrected: int | None


def repair_hints(table: TableCore, *, dry_run: bool = False) -> list[HintRepair]:
    """Write the hints that are missing or wrong, and return what was wrong.

    Raises:
        StorageUnavailableError: the store failed; call again.
    """
    layout = table.layout
    snapshots, changelogs = (layout.snapshot_dir, "snapshot-"), (layout.changelog_dir, "changelog-")
    hints = (
        (layout.latest_hint, snapshots, -1),
        (layout.earliest_hint, snapshots, 0),
        (layout.changelog_latest_hint, changelogs, -1),
        (layout.changelog_earliest_hint, changelogs, 0),
    )
    repairs = (_repaired(table, *hint, dry_run=dry_run) for hint in hints)
    return [repair for repair in repairs if repair is not None]


def _repaired(
    table: TableCore,
    hint: str,
    hint_names: tuple[str, str],
    position: int,
    *,
    dry_run: bool,
) -> HintRepair | None:
    """Repair a hint that must hold the id at a position of the ascending listing."""

    def listed_id() -> int | None:
        ids = listed_ids(table.file_io, *hint_names)
        return ids[position] if ids else None

    old_id, new_id = read_hint(table.file_io, hint), listed_id()
    if old_id == new_id and not (new_id is None and table.file_io.exists(hint)):
        return None
    for _ in range(0 if dry_run else _TRIES):
        if new_id is None:
            table.file_io.delete(hint)
        else:
            table.file_io.overwrite_bytes(hint, str(new_id).encode())
        previous, new_id = new_id, listed_id()
        if new_id == previous:
            break
    return HintRepair(path=hint, recorded=old_id, corrected=new_id)
