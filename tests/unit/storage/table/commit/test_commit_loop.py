# SPDX-License-Identifier: Apache-2.0
"""Jobs that write and commit beside other writers: what is tried again, what happens to files."""

import pathlib

import pytest

from storage.errors import CommitConflictError, FileConflictError, StorageUnavailableError
from storage.format.metadata.snapshot import BATCH_COMMIT_IDENTIFIER
from storage.table.commit.commit import Attempt, CommitResult, run_until_committed
from storage.table.commit.commit_changes import discarded_on
from storage.table.table import FileStoreTable
from tests.table_kit import data_files, make_table, prepared, rows_of


class Job:
    """Writes a row; its commits fail as told, then happen.

    Args:
        table: the table.
        errors: what the commits raise, one after the other.
    """

    def __init__(self, table: FileStoreTable, *errors: Exception) -> None:
        self.table = table
        self.errors = list(errors)
        self.attempts = 0
        self.lost = 0

    def prepare(self) -> Attempt:
        self.attempts += 1
        messages = prepared(self.table, [("+I", 1, f"{self.attempts}")])

        def commit() -> CommitResult:
            if self.errors:
                raise self.errors.pop(0)
            return self.table.new_commit("job").commit(messages, BATCH_COMMIT_IDENTIFIER)

        return messages, commit

    def count_lost(self) -> None:
        self.lost += 1

    def run(self, attempts: int, *retried: type[Exception]) -> CommitResult | None:
        committed = run_until_committed(
            self.table, self.prepare, attempts=attempts, retried=retried, on_lost=self.count_lost
        )
        return None if committed is None else committed[1]


def test_a_lost_attempt_leaves_no_file_and_the_next_one_is_committed(
    tmp_path: pathlib.Path,
) -> None:
    job = Job(make_table(tmp_path), FileConflictError("lost"), FileConflictError("lost"))
    result = job.run(4, FileConflictError)
    assert result is not None
    assert result.append_snapshot_id == 1
    assert (job.attempts, job.lost) == (3, 2)
    assert len(data_files(job.table)) == 1
    assert rows_of(job.table) == [(1, "3")]


@pytest.mark.parametrize("error", [FileConflictError("lost"), CommitConflictError("lost")])
def test_the_last_error_is_raised_and_no_file_is_left(
    tmp_path: pathlib.Path, error: Exception
) -> None:
    job = Job(make_table(tmp_path), *([error] * 3))
    with pytest.raises(type(error)):
        job.run(2, type(error))
    assert (job.attempts, job.lost, data_files(job.table)) == (2, 2, set())


def test_an_error_that_another_attempt_does_not_help_is_raised_at_once(
    tmp_path: pathlib.Path,
) -> None:
    job = Job(make_table(tmp_path), CommitConflictError("lost"))
    with pytest.raises(CommitConflictError):
        job.run(4, FileConflictError)
    assert (job.attempts, data_files(job.table)) == (1, set())


def test_files_of_a_commit_of_unknown_outcome_stay(tmp_path: pathlib.Path) -> None:
    job = Job(make_table(tmp_path), StorageUnavailableError("no answer"))
    with pytest.raises(StorageUnavailableError):
        job.run(4, FileConflictError, CommitConflictError)
    assert job.attempts == 1
    assert len(data_files(job.table)) == 1


def test_a_plan_that_finds_nothing_ends_the_loop(tmp_path: pathlib.Path) -> None:
    assert run_until_committed(make_table(tmp_path), lambda: None, attempts=3) is None


def test_a_block_that_fails_removes_what_it_wrote_so_far(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path)
    messages = prepared(table, [("+I", 1, "a")])

    def write_more() -> None:
        with discarded_on(table, messages):
            messages.extend(prepared(table, [("+I", 2, "b")]))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_more()
    assert data_files(table) == set()


def test_the_reason_is_reported_when_files_cannot_be_removed_either(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(tmp_path)
    messages = prepared(table, [("+I", 1, "a")])

    def unavailable(*_: object) -> int:
        raise StorageUnavailableError("no answer")

    monkeypatch.setattr(FileStoreTable, "delete_quietly", unavailable)
    with pytest.raises(CommitConflictError, match="lost"), discarded_on(table, messages):
        raise CommitConflictError("lost")
