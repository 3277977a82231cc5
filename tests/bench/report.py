# SPDX-License-Identifier: Apache-2.0
"""The table that people read and the JSON that is kept."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.bench.measure import Figure

_WIDTH = 52


def print_part(name: str, figures: Sequence[Figure], seconds: float) -> None:
    """One part as a table of ratios."""
    print(f"\n{name}  ({seconds:.0f} s)")
    for figure in figures:
        print("  " + _line(figure))
        if figure.note:
            print(f"  {'':{_WIDTH}} {figure.note}")


def _line(figure: Figure) -> str:
    cells = f"{figure.name:{_WIDTH}} {_number(figure.value):>11} {figure.unit:<10}"
    if figure.ratio is not None:
        span = f" ({min(figure.ratios):.2f}-{max(figure.ratios):.2f})" if figure.ratios else ""
        cells += f" {figure.ratio:6.2f} x {figure.versus}{span}"
    if figure.met is not None:
        sign = "<=" if figure.lower and figure.ratio is None else ">="
        state = "met" if figure.met else "MISSED"
        cells += f"  [goal {sign} {_number(figure.goal or 0.0)}: {state}]"
    return cells


def _number(value: float) -> str:
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 10 else f"{value:.1f}"


def write_json(
    path: Path,
    machine: Mapping[str, Any],
    parts: Mapping[str, Mapping[str, Any]],
    *,
    quick: bool,
) -> None:
    """Keep a run; figures with all their samples."""
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {"quick": quick, "machine": machine, "parts": parts}
    path.write_text(json.dumps(document, indent=1, default=_plain) + "\n")


def _plain(value: object) -> Any:
    if isinstance(value, Figure):
        return {**dataclasses.asdict(value), "met": value.met}
    raise TypeError(type(value))
