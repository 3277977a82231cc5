# SPDX-License-Identifier: Apache-2.0
"""Reference pages: their prose is written by hand, the tables of their sections are generated."""

import re
import sys
from collections.abc import Mapping
from pathlib import Path

from storage.errors import InternalError


def with_tables(page: str, tables: Mapping[str, str]) -> str:
    """A page with other tables.

    Args:
        page: Markdown.
        tables: by heading of the section, whose first table each replaces.

    Raises:
        InternalError: there is no such section with a table.
    """
    for heading, table in tables.items():
        section = rf"(^## {re.escape(heading)}\n(?:(?!## |\|).*\n)*)(?:\|.*\n)+"
        new = table.replace("\\", r"\\")
        page, count = re.subn(section, rf"\g<1>{new}", page, flags=re.M)
        if not count:
            raise InternalError("the page has no such section with a table", section=heading)
    return page


def main(path: Path, tables: Mapping[str, str]) -> int:
    """Update a page; with `--check` verify that it is up to date. The exit code."""
    text = path.read_text(encoding="utf-8")
    page = with_tables(text, tables)
    if "--check" not in sys.argv[1:]:
        path.write_text(page, encoding="utf-8")
    elif page != text:
        sys.stderr.write(f"{path.name} is out of date: run `make docs`\n")
        return 1
    return 0
