# SPDX-License-Identifier: Apache-2.0
import pathlib

import pytest

from storage.errors import InvalidOptionError
from storage.format.metadata.schema_changes import SetOption
from tests.table_kit import make_table

_LOOKUP = {"changelog-producer": "lookup"}
_FULL = {"changelog-producer": "full-compaction"}
_INPUT = {"changelog-producer": "input"}
_OVERWRITES = {"streaming-read-overwrite": "true"}
_VECTORS = {"deletion-vectors.enabled": "true"}
_FIRST = {"merge-engine": "first-row"}


@pytest.mark.parametrize(
    ("options", "keys", "message"),
    [
        (_LOOKUP, (), "Can not set changelog-producer on table without primary keys"),
        (_INPUT, (), "Can not set changelog-producer on table without primary keys"),
        ({**_LOOKUP, "full-compaction.delta-commits": "3"}, ("k",), "is incompatible with"),
        ({"full-compaction.delta-commits": "3", "bucket": "-1"}, (), "does not support"),
        ({**_LOOKUP, **_OVERWRITES}, ("k",), "because it will read duplicated changes"),
        ({**_FULL, **_OVERWRITES}, ("k",), "because it will read duplicated changes"),
        (_OVERWRITES, (), "read the changes from overwrite when the primary keys are not defined"),
        ({**_FIRST, **_INPUT}, ("k",), "Only support 'none' and 'lookup'"),
        ({**_FIRST, **_FULL}, ("k",), "Only support 'none' and 'lookup'"),
        ({**_FIRST, "sequence.field": "v"}, ("k",), "FIRST_ROW"),
        ({**_FIRST, **_VECTORS}, ("k",), "First row merge engine does not need deletion vectors"),
        ({**_VECTORS, **_FULL}, ("k",), "Deletion vectors mode is only supported for NONE/INPUT"),
        ({"record-level.time-field": "x"}, ("k",), "Can not find time field x"),
        ({"record-level.time-field": "v"}, ("k",), "should be one of INT, BIGINT, or TIMESTAMP"),
    ],
)
def test_what_does_not_go_together_is_refused_when_the_table_is_made(
    tmp_path: pathlib.Path, options: dict[str, str], keys: tuple[str, ...], message: str
) -> None:
    if not keys and options.get("bucket") != "-1":
        options = {**options, "bucket-key": "k"}
    with pytest.raises(InvalidOptionError, match=message):
        make_table(tmp_path, keys=keys, options=options)


@pytest.mark.parametrize(
    "options",
    [
        {**_LOOKUP, **_VECTORS},
        {**_INPUT, **_VECTORS},
        {**_INPUT, **_OVERWRITES},
        {**_FULL, "full-compaction.delta-commits": "3"},
        {**_FIRST, **_LOOKUP},
        _FIRST,
        {"changelog-producer": "lookup", "streaming-read-overwrite": "false"},
        {"record-level.time-field": "k"},
    ],
)
def test_what_goes_together_is_accepted(tmp_path: pathlib.Path, options: dict[str, str]) -> None:
    make_table(tmp_path, options=options)


def test_a_change_of_options_is_checked_too(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path, options={"full-compaction.delta-commits": "3"})
    with pytest.raises(InvalidOptionError, match="is incompatible with"):
        table.alter([SetOption("changelog-producer", "lookup")])
    lookup = make_table(tmp_path / "lookup", options=_LOOKUP)
    with pytest.raises(InvalidOptionError, match="duplicated changes"):
        lookup.alter([SetOption("streaming-read-overwrite", "true")])
    assert table.alter([SetOption("changelog-producer", "full-compaction")]).schema.id == 1
