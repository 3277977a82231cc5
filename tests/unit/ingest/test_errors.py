# SPDX-License-Identifier: Apache-2.0
import importlib
import pkgutil

import pytest

import ingest
from ingest.daemon.retry import error_in
from ingest.errors import (
    ERROR_KINDS,
    AccessDeniedError,
    ExitCode,
    error_named,
    exit_code_of,
    kind_of,
)
from storage import errors


def every_error():
    """All classes of the tree, wherever they are defined."""
    for module in pkgutil.walk_packages(ingest.__path__, "ingest."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    todo, found = [errors.LakewardError], []
    while todo:
        found.append(todo.pop())
        todo += found[-1].__subclasses__()
    return [kind for kind in found if kind.__module__.startswith(("storage.", "ingest."))]


def test_an_error_keeps_its_exit_code_on_its_way_out_of_a_task():
    kinds = every_error()
    assert {kind.__module__ for kind in kinds} > {"storage.errors", "ingest.errors"}
    for kind in kinds:
        text = f"Traceback …\n{kind.__module__}.{kind.__qualname__}: no; hint: act\n\tat org.apache"
        found = error_in(text)
        assert found is not None, kind
        assert exit_code_of(found) == exit_code_of(kind("no")), kind


def test_names_of_errors_that_are_not_ours():
    assert error_named("PermissionError") is AccessDeniedError
    assert exit_code_of(error_named("FileNotFoundError")("x")) == exit_code_of(OSError("x"))
    for name in ("KeyError", "nothing", "print", ""):
        assert error_named(name) is None


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
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    for kind in filter(lambda kind: issubclass(kind, errors.LakewardError), kinds):
        error = kind("x")
        assert kind_of(error) in ERROR_KINDS
        assert kind_of(error).level >= 30


def test_special_rows_come_before_general_ones():
    for index, kind in enumerate(ERROR_KINDS):
        shadowed = [k for k in ERROR_KINDS[:index] if issubclass(kind.error, k.error)]
        assert not shadowed, kind


def test_every_exit_code_has_a_meaning():
    assert all(code.meaning for code in ExitCode)
