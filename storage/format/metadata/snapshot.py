# SPDX-License-Identifier: Apache-2.0
"""`Snapshot`: the JSON document that makes a table version visible.

Source: FORMAT.md §3.1. Where the documents live and which is the newest is in `snapshot_store`.
"""

import enum
from collections.abc import Mapping
from typing import Any

import msgspec

from storage.errors import CorruptDataError
from storage.format.metadata.documents import dump_object, parse_object

BATCH_COMMIT_IDENTIFIER = 9_223_372_036_854_775_807
"""`commitIdentifier` of batch writers, which have no checkpoints (Java's Long.MAX_VALUE)."""

CURRENT_VERSION = 3
_NO_WATERMARK = -9_223_372_036_854_775_808


class CommitKind(enum.Enum):
    """Why a snapshot was created."""

    APPEND = "APPEND"
    COMPACT = "COMPACT"
    OVERWRITE = "OVERWRITE"
    ANALYZE = "ANALYZE"


class Snapshot(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One table version. Attributes mirror the JSON members in their order; None = absent.

    Attributes:
        id: the N of `snapshot-N`, from 1, without gaps.
        schema_id: newest schema at commit time.
        base_manifest_list: state before this commit; name inside `manifest/`.
        base_manifest_list_size: [bytes].
        delta_manifest_list: this commit's changes.
        delta_manifest_list_size: [bytes].
        changelog_manifest_list: this commit's changelog, or None.
        changelog_manifest_list_size: [bytes].
        index_manifest: the complete index manifest, or None.
        commit_user: identity of the writing job.
        commit_identifier: grows with each commit of a user; `BATCH_COMMIT_IDENTIFIER` for batch.
        commit_kind: why.
        time_ms: commit time [epoch ms].
        total_record_count: rows of all live files, unmerged.
        delta_record_count: rows added minus rows removed by the delta.
        changelog_record_count: rows of changelog files, or None.
        watermark: event time [epoch ms]; None also for the "no watermark" mark of old files.
        statistics: name inside `statistics/`, or None.
        properties: free text pairs of the committer, or None.
        next_row_id: for row tracking, or None.
        uuid: identity of the document, or None in old files.
        version: format version; we write 3.
        extra: members that this version does not know, kept on rewriting.
    """

    version: int = CURRENT_VERSION
    uuid: str | None = None
    id: int
    schema_id: int
    base_manifest_list: str
    base_manifest_list_size: int | None = None
    delta_manifest_list: str
    delta_manifest_list_size: int | None = None
    changelog_manifest_list: str | None = None
    changelog_manifest_list_size: int | None = None
    index_manifest: str | None = None
    commit_user: str
    commit_identifier: int
    commit_kind: CommitKind
    time_ms: int = msgspec.field(name="timeMillis")
    total_record_count: int
    delta_record_count: int
    changelog_record_count: int | None = None
    watermark: int | None = None
    statistics: str | None = None
    properties: Mapping[str, str] | None = None
    next_row_id: int | None = None
    extra: Mapping[str, Any] = {}

    def to_json(self) -> bytes:
        """The bytes of the snapshot file: indented UTF-8 JSON; absent members are left out."""
        return dump_object(self.members())

    @property
    def lists(self) -> tuple[tuple[str, int | None], ...]:
        """Names and recorded sizes [bytes] of the base, the delta and any changelog list."""
        lists = (
            (self.base_manifest_list, self.base_manifest_list_size),
            (self.delta_manifest_list, self.delta_manifest_list_size),
        )
        if self.changelog_manifest_list is None:
            return lists
        return *lists, (self.changelog_manifest_list, self.changelog_manifest_list_size)

    def members(self) -> dict[str, Any]:
        """The members of the JSON object, unknown ones last."""
        value: dict[str, Any] = msgspec.to_builtins(self)
        del value["extra"]
        return {key: part for key, part in value.items() if part is not None} | dict(self.extra)

    @classmethod
    def from_json(cls, data: bytes) -> "Snapshot":
        """Read a snapshot (or tag, or long-lived changelog) file.

        Raises:
            CorruptDataError: the bytes are no snapshot; names the member at fault.
        """
        value = parse_object(data, "snapshot")
        members = {key: value[key] for key in _MEMBERS if value.get(key) is not None}
        members.setdefault("version", 1)
        if members.get("watermark") == _NO_WATERMARK:
            del members["watermark"]
        extra = {key: value[key] for key in value if key not in _MEMBERS}
        try:
            return msgspec.convert({**members, "extra": extra}, cls)
        except msgspec.ValidationError as error:
            raise CorruptDataError(
                "a field of a snapshot file is missing or invalid", detail=str(error)
            ) from error


_MEMBERS = tuple(
    field.encode_name for field in msgspec.structs.fields(Snapshot) if field.name != "extra"
)
