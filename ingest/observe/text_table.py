# SPDX-License-Identifier: Apache-2.0
"""Values as text for people and machines: aligned tables, sizes, JSON lines, CSV."""

import base64
import csv
import datetime
import decimal
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

_WIDEST = 60
_NULL = "null"


def aligned(head: Sequence[str], rows: Iterable[Sequence[Any]], *, indent: str = "") -> str:
    """A table with numbers to the right and everything else to the left, without final newline.

    Args:
        head: column titles.
        rows: cells; None becomes `null`, long texts are cut.
        indent: put before every line.
    """
    table = [list(row) for row in rows]
    texts = [[_cell(value) for value in row] for row in table]
    widths = [
        max([len(title), *(len(row[index]) for row in texts)]) for index, title in enumerate(head)
    ]
    right = [
        bool(table) and all(_is_number(row[index]) for row in table) for index in range(len(head))
    ]

    def line(cells: Sequence[str]) -> str:
        padded = (
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(cells, widths, right, strict=True)
        )
        return (indent + "  ".join(padded)).rstrip()

    rule = indent + "  ".join("-" * width for width in widths)
    return "\n".join([line(list(head)), rule, *(line(row) for row in texts)])


def _is_number(value: object) -> bool:
    if isinstance(value, bool):
        return False
    return value is None or isinstance(value, (int, float, decimal.Decimal))


def _cell(value: object) -> str:
    if value is None:
        return _NULL
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (bytes, list, tuple, dict)):
        text = json.dumps(plain(value), ensure_ascii=False)
    else:
        text = str(value)
    text = "".join(c if c.isprintable() else "·" for c in text)
    return text if len(text) <= _WIDEST else text[: _WIDEST - 1] + "…"


def plain(value: object) -> Any:
    """A value as JSON can hold it exactly: decimals, times and NaN as text, bytes in base64."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, decimal.Decimal):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else f"{'-' * (value < 0)}Infinity"
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def json_line(values: Mapping[str, Any]) -> str:
    """One JSON object on one line."""
    return json.dumps(plain(values), ensure_ascii=False, separators=(",", ":"))


def csv_text(head: Sequence[str], rows: Iterable[Sequence[Any]], *, with_head: bool = True) -> str:
    """RFC 4180 text; null is the empty cell."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    if with_head:
        writer.writerow(head)
    for row in rows:
        writer.writerow(["" if value is None else _csv_cell(value) for value in row])
    return out.getvalue()


def _csv_cell(value: object) -> object:
    simple = plain(value)
    if isinstance(simple, bool):
        return "true" if simple else "false"
    return json.dumps(simple, ensure_ascii=False) if isinstance(simple, (list, dict)) else simple


def human_size(size_bytes: int) -> str:
    """A size with three significant digits, such as `1.24 MB`."""
    size = float(size_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"


def human_time(time_ms: int) -> str:
    """A moment in UTC, to the millisecond."""
    moment = datetime.datetime.fromtimestamp(time_ms / 1000, datetime.UTC)
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{time_ms % 1000:03d}"


def rows_of(data: "pa.RecordBatch | pa.Table") -> list[list[Any]]:
    """Rows of a small batch as Python values, for printing."""
    columns = [column.to_pylist() for column in data.columns]
    return [list(row) for row in zip(*columns, strict=True)]
