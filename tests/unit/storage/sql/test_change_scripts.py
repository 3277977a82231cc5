# SPDX-License-Identifier: Apache-2.0
"""Scripts of statements that change rows, and what each of them gives.

A script is SQL. Behind a statement stands what is expected, in comments: `--> 3` rows affected,
`--> a, b | c, d` rows, `--> ! pattern` an error whose text matches.
Each script runs in a warehouse of its own; after an error the table is as it was before.
"""

import datetime
import decimal
import pathlib
import re
from collections.abc import Iterator
from typing import Any

import pytest

from storage.catalog.filesystem import FileSystemCatalog
from storage.errors import LakewardError
from storage.io.local import LocalFileIO
from storage.sql.session import SqlSession
from storage.table.table import FileStoreTable
from storage.testing.invariants import check_table

SCRIPTS = sorted((pathlib.Path(__file__).parent / "changes").glob("*.sql"))
CASE = re.compile(r"(.+?;)\s*?\n((?:-->[^\n]*\n?)+)", re.DOTALL)


def cases(script: pathlib.Path) -> Iterator[tuple[str, str]]:
    """Statements with what is expected of them."""
    text = "\n".join(
        line
        for line in script.read_text(encoding="utf-8").splitlines()
        if not re.match(r"--(?!>)", line)
    )
    end = 0
    for found in CASE.finditer(text + "\n"):
        assert not text[end : found.start()].strip(), f"no expectation: {text[end : found.start()]}"
        end = found.end()
        lines = re.findall(r"-->[ ]?([^\n]*)", found[2])
        yield found[1].strip().rstrip(";"), "\n".join(lines)
    assert not text[end:].strip(), f"no expectation: {text[end:]}"


def written(value: Any) -> str:
    """A value as scripts write it."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime.datetime):
        return value.isoformat(sep=" ", timespec="milliseconds")
    if isinstance(value, float | decimal.Decimal | int | str):
        return str(value)
    return repr(value)


def given(session: SqlSession, text: str) -> str:
    """What a statement gives, as scripts write it."""
    (result,) = session.execute(text)
    if result.rows is None:
        return str(result.affected)
    rows = [", ".join(map(written, row.values())) for row in result.rows.to_pylist()]
    return " | ".join(rows)


def newest(session: SqlSession) -> dict[str, int | None]:
    found = {}
    for name in session.catalog.list_tables("default"):
        table = session.catalog.table(f"default.{name}")
        if isinstance(table, FileStoreTable):
            found[name] = table.snapshots.latest_id()
    return found


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_each_statement_gives_what_is_expected(
    script: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    catalog = FileSystemCatalog(str(tmp_path), file_io=LocalFileIO(durable=False))
    catalog.create_database("default")
    session = SqlSession(catalog)
    session.options["table.local-time-zone"] = "Europe/Berlin"
    for text, expected in cases(script):
        if not expected.startswith("!"):
            assert given(session, text) == expected.replace("\n", " | "), text
            continue
        before = newest(session)
        pattern = expected.removeprefix("!").strip()
        with pytest.raises(LakewardError, match=pattern) as caught:
            given(session, text)
        assert "line" in caught.value.context, f"no place: {text}: {caught.value}"
        assert newest(session) == before, text
    for name in catalog.list_tables("default"):
        check_table(catalog.table(f"default.{name}"), rows=True)


def test_there_are_many_cases() -> None:
    found = [case for script in SCRIPTS for case in cases(script)]
    assert len(found) >= 150
    assert sum(expected.startswith("!") for _, expected in found) >= 60
