# SPDX-License-Identifier: Apache-2.0
import json

import pytest

from storage.errors import CorruptDataError
from storage.format.metadata.snapshot import CommitKind, Snapshot

MINIMAL = {
    "version": 3,
    "id": 1,
    "schemaId": 0,
    "baseManifestList": "b",
    "deltaManifestList": "d",
    "changelogManifestList": None,
    "commitUser": "u",
    "commitIdentifier": 9,
    "commitKind": "APPEND",
    "timeMillis": 5,
    "logOffsets": {},
    "totalRecordCount": 1,
    "deltaRecordCount": -1,
    "changelogRecordCount": 0,
    "watermark": -9223372036854775808,
}


def parsed(**parts):
    return Snapshot.from_json(json.dumps({**MINIMAL, **parts}).encode())


def test_documents_of_old_writers_are_read():
    snapshot = parsed()
    assert snapshot.commit_kind is CommitKind.APPEND
    assert snapshot.watermark is None
    assert snapshot.changelog_manifest_list is None
    assert snapshot.extra == {"logOffsets": {}}


def test_absent_members_are_left_out_and_unknown_ones_kept():
    written = json.loads(parsed(uuid="x", properties={"a": "b"}, newer=[1]).to_json())
    expected = {**MINIMAL, "uuid": "x", "properties": {"a": "b"}, "newer": [1]}
    del expected["changelogManifestList"], expected["watermark"]
    assert written == expected


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", json.dumps({**MINIMAL, "commitKind": "MERGE"}).encode(),
             json.dumps({**MINIMAL, "id": "1"}).encode()]
)  # fmt: skip
def test_damaged_documents_are_named(data):
    with pytest.raises(CorruptDataError):
        Snapshot.from_json(data)
