# SPDX-License-Identifier: Apache-2.0
"""What a process imports for what it does: public names are lazy, client libraries wait."""

import ast
import importlib
import pathlib
import subprocess
import sys

import pytest

import storage
from tests.table_kit import make_table, write


def _modules_after(code: str) -> set[str]:
    """Names of the modules that a fresh interpreter has after running some code."""
    script = f"{code}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    return set(done.stdout.splitlines()[-1].split())


def test_one_module_does_not_import_the_others() -> None:
    found = _modules_after("import storage.format.metadata.schema")
    assert not {"obstore", "storage.table", "storage.lsm", "pyarrow.parquet"} & found
    assert "storage" in _modules_after("import storage; storage.__all__")


def test_a_local_warehouse_needs_no_client_library(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path)
    write(table, 1, [("+I", 1, "a")])
    code = (
        "from storage import FileSystemCatalog\n"
        f"assert FileSystemCatalog({str(tmp_path)!r}).table('db.t').to_arrow().num_rows == 1"
    )
    assert "obstore" not in _modules_after(code)


def test_public_names_come_from_their_modules() -> None:
    tree = ast.parse(pathlib.Path(storage.__file__).read_text(encoding="utf-8"))
    (typed,) = (node for node in tree.body if isinstance(node, ast.If))
    told = {
        (alias.name, node.module)
        for node in typed.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert {name for name, _ in told} == set(storage.__all__)
    for name, module in told:
        assert getattr(storage, name) is getattr(importlib.import_module(module or ""), name)
    assert set(storage.__all__) <= set(dir(storage))


def test_other_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        getattr(storage, "no_such_name")  # noqa: B009
    with pytest.raises(ImportError):
        exec("from storage import no_such_name")


def test_names_and_snapshots_are_listed_without_formats_and_engines(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path)
    write(table, 1, [("+I", 1, "a")])
    code = (
        "from storage.catalog.catalog import FileSystemCatalog\n"
        f"catalog = FileSystemCatalog({str(tmp_path)!r})\n"
        "assert catalog.list_tables('db') == ['t']\n"
        "assert catalog.newest_snapshot('db.t').id == 1"
    )
    heavy = {"storage.table.table", "storage.lsm", "pyarrow.parquet", "pyarrow.compute", "fastavro"}
    assert not heavy & _modules_after(code)
