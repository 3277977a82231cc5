# SPDX-License-Identifier: Apache-2.0
"""Results of statements as tables, CSV, or one JSON object per statement."""

import dataclasses
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ingest.observe.text_table import aligned, csv_text, json_line, rows_of
from storage.errors import LakewardError

if TYPE_CHECKING:
    from storage.sql.session import Result

_WIDE_COLUMNS = ("create_table", "create_view", "create_database", "create_catalog", "plan")
"""Columns that hold whole texts: they are printed as they are."""


@dataclasses.dataclass(slots=True)
class Output:
    """Prints results.

    Attributes:
        format: one of `FORMATS`.
        timing: whether the seconds of a statement are printed.
        most_rows: rows that are printed of a result as a table or vertically; None: all.
        write: takes the text.
    """

    format: str = "table"
    timing: bool = False
    most_rows: int | None = None
    write: Callable[[str], Any] = dataclasses.field(default_factory=lambda: sys.stdout.write)

    def show(self, result: "Result", seconds: float) -> None:
        """Print the result of a statement."""
        if self.format == "json":
            self.write(json_line(_document(result)) + "\n")
            return
        if result.rows is None:
            if self.format == "table":
                affected = result.affected or 0
                what = "ok" if not affected else f"{affected:,} row{'s' * (affected != 1)}"
                self.write(what + self._time(seconds) + "\n")
            return
        rows = result.rows
        head = rows.column_names
        if self.format == "csv":
            self.write(csv_text(head, rows_of(rows)))
            return
        page = rows if self.most_rows is None else rows.slice(0, self.most_rows)
        if rows.num_columns == 1 and head[0] in _WIDE_COLUMNS:
            self.write("\n".join(map(str, rows.column(0).to_pylist())) + "\n")
        elif self.format == "vertical":
            self.write(_vertical(head, rows_of(page)))
        else:
            self.write(aligned(head, rows_of(page)) + "\n")
        count = f"{rows.num_rows:,} row{'s' * (rows.num_rows != 1)}"
        if page.num_rows < rows.num_rows:
            count = f"first {page.num_rows:,} of {count}; \\rows sets how many are printed"
        self.write(f"({count}{self._time(seconds)})\n")

    def fail(self, error: BaseException) -> None:
        """Print an error."""
        if self.format == "json":
            self.write(json_line(error_document(error)) + "\n")
        else:
            sys.stdout.flush()
            sys.stderr.write(error_text(error))

    def _time(self, seconds: float) -> str:
        return f", {seconds:.3f} s" if self.timing else ""


FORMATS = ("table", "vertical", "csv", "json")


def _document(result: "Result") -> dict[str, Any]:
    if result.rows is None:
        return {"affected": result.affected or 0}
    return {"columns": result.rows.column_names, "rows": rows_of(result.rows)}


def _vertical(head: list[str], rows: list[list[Any]]) -> str:
    width = max(map(len, head), default=0)
    lines = []
    for number, row in enumerate(rows, start=1):
        lines.append(f"-- row {number} --")
        texts = ("null" if value is None else str(value) for value in row)
        lines += [f"{name:>{width}} | {text}" for name, text in zip(head, texts, strict=True)]
    return "".join(f"{line}\n" for line in lines)


def error_document(error: BaseException) -> dict[str, Any]:
    """An error as JSON: the sentence, its class, hint, line and column."""
    if not isinstance(error, LakewardError):
        return {"error": str(error) or type(error).__name__, "type": type(error).__name__}
    document: dict[str, Any] = {"error": _sentence(error), "type": type(error).__name__}
    if error.hint:
        document["hint"] = error.hint
    places = ("line", "column")
    return document | {key: error.context[key] for key in places if key in error.context}


def error_text(error: BaseException) -> str:
    """An error for people: where, what, and what to do next."""
    if not isinstance(error, LakewardError):
        return f"error: {type(error).__name__}: {error}\n"
    place = ""
    if error.context.get("line"):
        place = f" at line {error.context['line']}, column {error.context.get('column', 1)}"
    hint = f"  hint: {error.hint}\n" if error.hint else ""
    return f"error{place}: {_sentence(error)}\n{hint}"


def _sentence(error: LakewardError) -> str:
    facts = ", ".join(
        f"{key} = {value}" for key, value in error.context.items() if key not in ("line", "column")
    )
    text = error.message + (f" ({facts})" if facts else "")
    return text + (f": {error.detail}" if error.detail else "")
