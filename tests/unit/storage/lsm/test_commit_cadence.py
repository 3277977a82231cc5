# SPDX-License-Identifier: Apache-2.0
import pytest

from storage.format.metadata.snapshot import BATCH_COMMIT_IDENTIFIER
from storage.lsm.write_rules import full_compaction_interval, merges_everything, merges_level_0
from storage.options.options import TableOptions

_LOOKUP = {"changelog-producer": "lookup"}
_GENTLE = {**_LOOKUP, "lookup-compact": "gentle"}


def _options(raw: dict[str, str]) -> TableOptions:
    return TableOptions.from_strings({"bucket": "1", **raw})


@pytest.mark.parametrize(
    ("raw", "interval"),
    [
        ({}, None),
        ({"changelog-producer": "full-compaction"}, 1),
        ({"changelog-producer": "full-compaction", "full-compaction.delta-commits": "3"}, 3),
        ({"full-compaction.delta-commits": "2"}, 2),
        ({"full-compaction.delta-commits": "0"}, 1),
        ({"full-compaction.delta-commits": "-1"}, None),
    ],
)
def test_commits_from_one_full_compaction_to_the_next(
    raw: dict[str, str], interval: int | None
) -> None:
    assert full_compaction_interval(_options(raw)) == interval


def test_full_compactions_go_by_the_identifier_of_a_stream() -> None:
    options = _options({"full-compaction.delta-commits": "3"})
    due = [number for number in range(1, 10) if merges_everything(options, number)]
    assert due == [3, 6, 9]
    assert merges_everything(options, BATCH_COMMIT_IDENTIFIER)
    assert not merges_everything(options, None)
    assert not merges_everything(_options({}), 3)
    write_only = _options({"full-compaction.delta-commits": "3", "write-only": "true"})
    assert not merges_everything(write_only, 3)


@pytest.mark.parametrize(
    ("raw", "streaming", "batch"),
    [
        ({}, False, False),
        (_LOOKUP, True, True),
        ({"merge-engine": "first-row"}, True, True),
        ({"deletion-vectors.enabled": "true"}, True, True),
        ({"force-lookup": "true"}, True, True),
        ({**_LOOKUP, "lookup-wait": "false"}, False, True),
        ({**_LOOKUP, "changelog-producer.lookup-wait": "false"}, False, True),
        ({**_LOOKUP, "lookup-wait": "false", "commit.force-compact": "true"}, True, True),
        ({**_LOOKUP, "write-only": "true"}, False, False),
        (_GENTLE, False, False),
    ],
)
def test_which_commits_compact_level_0(raw: dict[str, str], streaming: bool, batch: bool) -> None:
    options = _options(raw)
    assert merges_level_0(options, 7) == streaming
    assert merges_level_0(options, None) == batch
    assert merges_level_0(options, BATCH_COMMIT_IDENTIFIER) == batch


@pytest.mark.parametrize(
    ("raw", "interval"), [({}, 10), ({"max-interval": "7"}, 7), ({"max-interval": "2"}, 5)]
)
def test_a_gentle_stream_compacts_level_0_every_so_many_commits(
    raw: dict[str, str], interval: int
) -> None:
    options = _options({**_GENTLE, **{f"lookup-compact.{key}": raw[key] for key in raw}})
    due = [number for number in range(1, 31) if merges_level_0(options, number)]
    assert due == list(range(interval, 31, interval))
