# SPDX-License-Identifier: Apache-2.0
import pytest

from ingest.errors import (
    ERROR_KINDS,
    AccessDeniedError,
    ExitCode,
    exit_code_of,
    kind_of,
)
from storage import errors


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.InvalidOptionError("x"), 78),
        (errors.UnsupportedFeatureError("x"), 78),
        (errors.NotFoundError("x"), 78),
        (errors.FencedError("x"), 75),
        (errors.CommitConflictError("x"), 75),
        (errors.StorageUnavailableError("x"), 69),
        (errors.RetryableError("x"), 69),
        (errors.DataLossError("x"), 65),
        (errors.CorruptDataError("x"), 65),
        (AccessDeniedError("x"), 77),
        (PermissionError("x"), 77),
        (OSError("x"), 69),
        (errors.InternalError("x"), 1),
        (RuntimeError("x"), 1),
    ],
)
def test_exit_codes(error, code):
    assert exit_code_of(error) == code


def test_every_error_of_the_tree_has_a_row():
    for name in errors.__all__:
        error = getattr(errors, name)("x")
        assert kind_of(error) in ERROR_KINDS
        assert kind_of(error).level >= 30


def test_special_rows_come_before_general_ones():
    for index, kind in enumerate(ERROR_KINDS):
        shadowed = [k for k in ERROR_KINDS[:index] if issubclass(kind.error, k.error)]
        assert not shadowed, kind


def test_every_exit_code_has_a_meaning():
    assert all(code.meaning for code in ExitCode)
