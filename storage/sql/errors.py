# SPDX-License-Identifier: Apache-2.0
"""Errors of statements: the cause, the place in the text, and what to write instead."""

import difflib
from collections.abc import Iterable
from typing import Any, NoReturn

from sqlglot import exp

from storage.errors import InvalidRequestError, LakewardError


class SqlError(InvalidRequestError):
    """A statement that cannot run.

    Attributes:
        line: of the place in the text, from 1; None where it is not known.
        column: of the place, from 1.
    """

    @property
    def line(self) -> int | None:
        """Line of the place, from 1."""
        return self.context.get("line")

    @property
    def column(self) -> int | None:
        """Column of the place, from 1."""
        return self.context.get("column")


def position(node: exp.Expr | None) -> dict[str, Any]:
    """Line and column of the first token of a node; empty where it is not known."""
    if node is None:
        return {}
    for part in node.walk():
        if "line" in part.meta:
            meta = part.meta
            width = meta["end"] - meta["start"]
            return {"line": meta["line"], "column": max(1, meta["col"] - width)}
    return {}


def locate(error: LakewardError, node: exp.Expr | None) -> LakewardError:
    """Put the place of a node into the context of an error that has none yet.

    `column` is then the one of the text; that of a table is `column_name`.
    """
    if "line" not in error.context:
        context = dict(error.context)
        if "column" in context:
            context = {"column_name": context.pop("column"), **context}
        error.context = {**context, **position(node)}
    return error


def refuse(
    message: str, node: exp.Expr | None = None, *, hint: str = "", **context: Any
) -> NoReturn:
    """Raise an error at a node.

    Raises:
        SqlError: always.
    """
    raise SqlError(message, hint=hint, **context, **position(node))


def suggestion(word: str, names: Iterable[str], otherwise: str = "", *, cutoff: float = 0.6) -> str:
    """A hint that names the closest of the known words; else `otherwise`."""
    by_fold = {name.lower(): name for name in names}
    matches = difflib.get_close_matches(word.lower(), by_fold, n=1, cutoff=cutoff)
    return f"did you mean {by_fold[matches[0]]}?" if matches else otherwise
