# SPDX-License-Identifier: Apache-2.0
"""`lakeward sql --follow`: the changes of a query's table, as they are committed."""

from typing import TYPE_CHECKING, NoReturn

from sqlglot import exp

from changelog.stream_scan import ChangelogReader
from ingest.errors import kind_of
from ingest.tools.console.output import Output
from storage.errors import LakewardError
from storage.sql.dialect import statements
from storage.sql.errors import refuse
from storage.sql.nodes import table_options
from storage.sql.query import query_rows
from storage.sql.session import Result
from storage.table.table import FileStoreTable

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.sql.session import SqlSession

_KIND = "_row_kind"
_OF_STATES = (
    "joins",
    "group",
    "order",
    "limit",
    "offset",
    "distinct",
    "having",
    "qualify",
    "with_",
)
_MODE, _SCAN = "scan.mode", "scan."


def follow(
    session: "SqlSession", text: str, output: Output, until: "Callable[[], bool] | None" = None
) -> int:
    """Print the changes of a table that a query selects, until Ctrl-C.

    The stream begins where the options of the hint say (`scan.mode`, `scan.snapshot-id`, …), else
    with all rows as inserts; statements before the query (USE, SET) are run.

    Args:
        session: of the statements.
        text: statements, of which the last is the query: one table, columns and WHERE.
        output: prints the changes of each snapshot.
        until: called between snapshots; true ends it.

    Returns:
        Exit code.
    """
    try:
        *before, last = statements(text)
        for statement in before:
            session.run(statement)
        node = last.parse()
        table = _followed(node)
        assert isinstance(node, exp.Select)
        source = session.resolve(table)
        if not isinstance(source, FileStoreTable):
            refuse("only tables can be followed", table)
        options = table_options(table)
        chosen = any(key.startswith(_SCAN) and key != _MODE for key in options)
        reader = ChangelogReader(source, options.get(_MODE, "default" if chosen else "latest-full"))
        if not node.find(exp.Star):
            node.set("expressions", [exp.column(_KIND), *node.expressions])
        for changes in reader.follow(until=until):
            rows = query_rows(session, node, changes)
            if rows.num_rows:
                output.show(Result(rows=rows), 0.0)
    except (LakewardError, OSError) as error:
        output.fail(error)
        return int(kind_of(error).exit_code)
    except KeyboardInterrupt:
        return 0
    return 0


def _followed(node: exp.Expression) -> exp.Table:
    """The table of a query that works row by row."""
    if not isinstance(node, exp.Select):
        _refuse(node)
    tables = list(node.find_all(exp.Table))
    whole = (exp.AggFunc, exp.Window, exp.Subquery, exp.Explode)
    if len(tables) != 1 or any(node.args.get(key) for key in _OF_STATES) or node.find(*whole):
        _refuse(node)
    return tables[0]


def _refuse(node: exp.Expression) -> NoReturn:
    refuse(
        "only SELECT … FROM one table WHERE … can be followed",
        node,
        hint="leave out joins, aggregates, ORDER BY and LIMIT",
    )
