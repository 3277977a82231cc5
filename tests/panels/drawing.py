# SPDX-License-Identifier: Apache-2.0
"""Draws panels from the dashboards' JSON and the answers of their queries: one page a dashboard.

A look at what Grafana would show, as far as a person has to judge it: titles, units, legends,
stacking, thresholds, what is empty. HTML with SVG in it; a browser makes the picture.
"""

import html
import math

from deploy.write_dashboards import DASHBOARDS
from tests.panels.answers import Answered

COLORS = (
    *("#7eb26d", "#eab839", "#6ed0e0", "#ef843c", "#e24d42", "#1f78c1"),
    *("#ba43a9", "#705da0", "#508642", "#cca300", "#447ebc", "#c15c17"),
)
NAMED = {"green": "#56a64b", "orange": "#ff9830", "red": "#e02f44"}
CELL, ROW, GAP = 53, 34, 8

_STYLE = """
body{margin:12px;background:#f4f5f5;font:12px system-ui,sans-serif;color:#222;width:1288px}
.grid{position:relative}
.p{position:absolute;background:#fff;border:1px solid #ddd;border-radius:3px;overflow:hidden;
box-sizing:border-box;padding:4px 6px}
.p h3{margin:0;font-size:12px;font-weight:600}
.row{position:absolute;font-size:15px;font-weight:600}
.legend{font-size:10px;color:#444;line-height:13px}
.legend i{display:inline-block;width:10px;height:3px;margin:0 3px 3px 8px}
.stat{display:flex;align-items:center;justify-content:center;color:#fff;font-size:24px;
position:absolute;inset:22px 0 0 0}
.none{color:#c00;padding:20px}
table{border-collapse:collapse;width:100%;font-size:11px}
td,th{text-align:right;padding:2px 6px;border-bottom:1px solid #eee}
td:first-child,th:first-child{text-align:left}
"""


def pages(answered: list[Answered]) -> dict[str, str]:
    """HTML by dashboard."""
    found = {}
    for name, document in DASHBOARDS.items():
        by_id = {each.panel["id"]: each for each in answered if each.dashboard == name}
        parts, bottom = [], 0
        for panel in document["panels"]:
            place = panel["gridPos"]
            bottom = max(bottom, place["y"] + place["h"])
            left, top = place["x"] * CELL, place["y"] * ROW
            if panel["type"] == "row":
                title = html.escape(panel["title"])
                parts.append(f'<div class="row" style="left:0;top:{top + 8}px">{title}</div>')
                continue
            width, height = place["w"] * CELL - GAP, place["h"] * ROW - GAP
            style = f"left:{left}px;top:{top}px;width:{width}px;height:{height}px"
            title = html.escape(panel["title"])
            body = _body(by_id[panel["id"]], width - 14, height - 26)
            parts.append(f'<div class="p" style="{style}"><h3>{title}</h3>{body}</div>')
        grid = f'<div class="grid" style="height:{bottom * ROW}px">{"".join(parts)}</div>'
        head = f"<h1>{html.escape(document['title'])}</h1>"
        found[name] = f"<!doctype html><meta charset=utf-8><style>{_STYLE}</style>{head}{grid}"
    return found


def _body(each: Answered, width: int, height: int) -> str:
    kind = each.panel["type"]
    if kind == "table":
        return _table(each)
    series = [one for found in each.series for one in found]
    lines = [
        (one["name"], [(float(t), float(v)) for t, v in one["values"] if math.isfinite(float(v))])
        for one in series
    ]
    lines = [(name, points) for name, points in lines if points]
    if not lines:
        return '<div class="none">no data</div>'
    if kind == "stat":
        return _stat(each.panel, lines)
    return (_heatmap if kind == "heatmap" else _lines)(each.panel, lines, width, height)


def _stat(panel: dict, lines: list) -> str:
    defaults = panel["fieldConfig"]["defaults"]
    value = lines[0][1][-1][1]
    color = "green"
    for step in defaults["thresholds"]["steps"]:
        if step["value"] is None or value >= step["value"]:
            color = step["color"]
    names = panel["options"].get("textMode") == "name"
    now = max(points[-1][0] for _, points in lines)
    last = [name for name, points in lines if points[-1][0] == now]
    text = " ".join(last) if names else shown(value, defaults["unit"])
    return f'<div class="stat" style="background:{NAMED[color]}">{html.escape(text)}</div>'


def _lines(panel: dict, lines: list, width: int, height: int) -> str:
    defaults = panel["fieldConfig"]["defaults"]
    stacked = defaults["custom"]["stacking"]["mode"] == "normal"
    if stacked:
        lines = _stacked(lines)
    names = [name for name, _ in lines]
    rows = -(-sum(len(name) * 6 + 26 for name in names) // width)
    plot_h, left = max(40, height - 13 * min(rows, 4) - 16), 48
    times = [t for _, points in lines for t, _ in points]
    low_t, high_t = min(times), max(max(times), min(times) + 1)
    top = max([v for _, points in lines for _, v in points] + [defaults.get("min") or 0])
    top = defaults.get("max") or (top * 1.08 if top > 0 else 1)
    low = min(0.0, min(v for _, points in lines for _, v in points))

    def at(t: float, v: float) -> str:
        x = left + (t - low_t) / (high_t - low_t) * (width - left - 4)
        return f"{x:.1f},{plot_h - (v - low) / (top - low) * (plot_h - 8):.1f}"

    parts = []
    for index in range(5):
        value = low + (top - low) * index / 4
        y = plot_h - index / 4 * (plot_h - 8)
        parts.append(f'<line x1="{left}" x2="{width}" y1="{y:.0f}" y2="{y:.0f}" stroke="#e5e5e5"/>')
        text = html.escape(shown(value, defaults["unit"]))
        parts.append(
            f'<text x="{left - 4}" y="{y + 4:.0f}" text-anchor="end" font-size="9">{text}</text>'
        )
    for step in defaults["thresholds"]["steps"][1:]:
        if low <= step["value"] <= top:
            ends = f"{at(low_t, step['value'])} {at(high_t, step['value'])}"
            dash = 'stroke-dasharray="4 3"'
            parts.append(f'<polyline points="{ends}" stroke="{NAMED[step["color"]]}" {dash}/>')
    order = list(enumerate(lines))
    for index, (_, points) in reversed(order) if stacked else order:
        color = COLORS[index % len(COLORS)]
        path = " ".join(at(t, v) for t, v in points)
        if stacked:
            ends = f"{at(points[-1][0], low)} {at(points[0][0], low)}"
            parts.append(f'<polygon points="{path} {ends}" fill="{color}" stroke="none"/>')
        parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="1.4"/>')
    legend = "".join(
        f'<i style="background:{COLORS[i % len(COLORS)]}"></i>{html.escape(name) or "(no name)"}'
        for i, name in enumerate(names)
    )
    svg = f'<svg width="{width}" height="{plot_h + 6}" fill="none">{"".join(parts)}</svg>'
    svg = svg.replace("<text ", '<text fill="#555" ')
    return f'{svg}<div class="legend">{legend}</div>'


def _stacked(lines: list) -> list:
    below: dict[float, float] = {}
    found = []
    for name, points in lines:
        raised = []
        for t, v in points:
            below[t] = below.get(t, 0.0) + v
            raised.append((t, below[t]))
        found.append((name, raised))
    return found


def _heatmap(panel: dict, lines: list, width: int, height: int) -> str:
    bounds = sorted(lines, key=lambda line: float(line[0].replace("+Inf", "inf")))
    times = sorted({t for _, points in bounds for t, _ in points})
    before = dict.fromkeys(times, 0.0)
    cells, most = [], 0.0
    for index, (_, points) in enumerate(bounds):
        for t, v in points:
            count = max(0.0, v - before[t])
            before[t] = v
            most = max(most, count)
            cells.append((index, t, count))
    left, high = 48, height - 6
    step_x, step_y = (width - left) / len(times), high / len(bounds)
    parts = [
        f'<rect x="{left + times.index(t) * step_x:.1f}" y="{high - (i + 1) * step_y:.1f}" '
        f'width="{step_x + 0.3:.1f}" height="{step_y - 1:.1f}" fill="#e6550d" '
        f'opacity="{math.sqrt(count / most):.2f}"/>'
        for i, t, count in cells
        if count
    ]
    for index, (name, _) in enumerate(bounds):
        y = high - index * step_y - step_y / 2 + 3
        parts.append(
            f'<text fill="#555" x="{left - 4}" y="{y:.0f}" text-anchor="end" font-size="9">'
            f"{name} s</text>"
        )
    return f'<svg width="{width}" height="{height}">{"".join(parts)}</svg>'


def _table(each: Answered) -> str:
    organize = next(t for t in each.panel["transformations"] if t["id"] == "organize")["options"]
    columns = sorted(organize["indexByName"], key=organize["indexByName"].get)
    titles = organize["renameByName"]
    units = {
        override["matcher"]["options"]: override["properties"][0]["value"]
        for override in each.panel["fieldConfig"]["overrides"]
    }
    keys = [name for name in columns if not name.startswith("Value")]
    rows: dict[tuple, dict] = {}
    for target, found in zip(each.panel["targets"], each.series, strict=True):
        for one in found:
            key = tuple(one["metric"].get(name, "") for name in keys)
            rows.setdefault(key, dict(zip(keys, key, strict=True)))[f"Value #{target['refId']}"] = (
                float(one["values"][-1][1])
            )
    head = "".join(f"<th>{html.escape(titles[name])}</th>" for name in columns)
    lines = []
    for key in sorted(rows):
        cells = []
        for name in columns:
            value = rows[key].get(name, "")
            if isinstance(value, float):
                value = shown(value, units.get(titles[name], "short"))
            cells.append(f"<td>{html.escape(value)}</td>")
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return f"<table><tr>{head}</tr>{''.join(lines)}</table>"


def shown(value: float, unit: str) -> str:
    """A number as Grafana writes it, about."""
    if unit == "none":
        return f"{value:.15g}"
    if unit == "percentunit":
        return f"{value * 100:.3g} %"
    if unit == "s":
        for size, name in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"), (0.001, "ms")):
            if abs(value) >= size:
                return f"{value / size:.3g} {name}"
        return f"{value:.3g} s"
    base, names = (
        (1024, ("", "Ki", "Mi", "Gi", "Ti"))
        if unit == "bytes"
        else (1000, ("", "K", "M", "G", "T"))
    )
    index = 0
    while abs(value) >= base and index < 4:
        value, index = value / base, index + 1
    tail = {"bytes": "B", "Bps": "B/s", "cps": "/s"}.get(unit, "")
    number = f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{number} {names[index]}{tail}".strip()
