# SPDX-License-Identifier: Apache-2.0
"""docs/reference/procedures.md, made from the declarations of the procedures.

python -m storage.sql.calls.page --write    # or --check: fails when the page is out of date
"""

import argparse
import pathlib
import sys
from collections.abc import Iterator, Sequence

from storage.sql.calls.declaration import Procedure
from storage.sql.procedures import PROCEDURES, REFUSED

PAGE = pathlib.Path(__file__).resolve().parents[3] / "docs/reference/procedures.md"

_HEAD = """\
# Procedures

<!-- written by `make docs` from storage/sql/calls -->

Called in SQL, with arguments by position or by name:

    CALL sys.compact('shop.orders');
    CALL sys.compact(table => 'shop.orders', partitions => 'dt=2024-01-31');

The names are those of Apache Paimon's procedures for Flink and for Spark; capitals and underscores
do not matter (`consumerId` is `consumer_id`). Without names, the order is Flink's, and an empty
text stands for an argument that is not given. Types: a *time* is a text such as
`'2024-01-31 12:00:00'` in the session's zone, or milliseconds since 1970; a *duration* is a text
such as `'1 d'` or `'30 min'`, a *pattern* a regular expression of the whole name; *options* are a
text `'key=value,key=value'` or `map('key', 'value')`.

`SHOW PROCEDURES` lists them. A procedure for several tables, partitions or tags processes one after
the other; after an error, call it again.
"""


def procedures_page() -> str:
    """The text of the page."""
    parts = [_HEAD]
    for name in sorted(PROCEDURES):
        parts += _section(PROCEDURES[name])
    parts.append("## Procedures that are refused\n")
    parts.append("| procedure | instead |\n|---|---|")
    parts += [f"| `sys.{name}` | {_cell(REFUSED[name])} |" for name in sorted(REFUSED)]
    return "\n".join(parts) + "\n"


def _section(procedure: Procedure) -> Iterator[str]:
    yield f"## {procedure.name}\n"
    aliases = ", ".join(f"`sys.{name}`" for name in procedure.aliases)
    yield procedure.about + (f" Also called {aliases}." if aliases else "") + "\n"
    yield "| argument | type | default | |\n|---|---|---|---|"
    for argument in procedure.arguments:
        default = "required" if argument.required else argument.default
        names = ", ".join(f"`{name}`" for name in (argument.name, *argument.aliases))
        yield f"| {names} | {argument.type} | {_cell(default)} | {_cell(argument.about)} |"
    yield ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line: write the page, or compare it."""
    parser = argparse.ArgumentParser(prog="python -m storage.sql.calls.page")
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--write", action="store_true", help="write the page")
    action.add_argument("--check", action="store_true", help="fail when the page is out of date")
    if parser.parse_args(arguments).write:
        PAGE.write_text(procedures_page(), encoding="utf-8")
        return 0
    if PAGE.is_file() and PAGE.read_text(encoding="utf-8") == procedures_page():
        return 0
    sys.stderr.write(f"{PAGE.name} is out of date: run `make docs`\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
