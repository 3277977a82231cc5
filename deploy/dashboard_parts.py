# SPDX-License-Identifier: Apache-2.0
"""What dashboards are made of: panels, rows, variables, in the JSON that Grafana imports."""

import dataclasses
from collections.abc import Sequence
from typing import Any

GOOD, WARN, BAD = "green", "orange", "red"

SCOPE = 'namespace=~"$namespace", job=~"$job"'
"""What every selector begins with; `{S}` in an expression stands for it."""

_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_WIDTH = 24
_SCHEMA_VERSION = 39


@dataclasses.dataclass(frozen=True, slots=True)
class Query:
    """One expression of a panel.

    Attributes:
        expr: PromQL; `{S}` is the selection by namespace and job, `[~]` the range of rates.
        legend: name of its series.
        instant: only the newest value is wanted.
    """

    expr: str
    legend: str = ""
    instant: bool = False


def query(expr: str, legend: str = "", *, instant: bool = False) -> Query:
    """A query with `{S}` and `[~]` filled in."""
    filled = expr.replace("{S}", SCOPE).replace("[~]", "[$__rate_interval]")
    return Query(filled, legend, instant)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One panel.

    Attributes:
        title: what is seen.
        text: what it means, and what to do about it.
        queries: as they are drawn.
        kind: `timeseries`, `stat`, `heatmap` or `table`.
        unit: of the values, in Grafana's words.
        width: of 24.
        height: in Grafana's rows.
        stacked: whether areas are put on top of each other.
        steps: colours from a value on, ascending; the first is without a value.
        minimum: of the axis.
        maximum: of the axis.
        columns: of a table: label or `Value #A` by title, in order.
        units: of a table's columns, by title.
        names: a stat shows the series' name and not its value.
    """

    title: str
    text: str
    queries: tuple[Query, ...]
    kind: str = "timeseries"
    unit: str = "short"
    width: int = 8
    height: int = 8
    stacked: bool = False
    steps: tuple[tuple[str, float | None], ...] = ((GOOD, None),)
    minimum: float | None = 0
    maximum: float | None = None
    columns: tuple[tuple[str, str], ...] = ()
    units: tuple[tuple[str, str], ...] = ()
    names: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """Panels under a title.

    Attributes:
        title: of the row.
        panels: from left to right, wrapped.
        repeat: variable of which every value gets a row.
        collapsed: whether it is shut at first.
    """

    title: str
    panels: tuple[Panel, ...]
    repeat: str = ""


def dashboard(
    *, uid: str, title: str, text: str, rows: Sequence[Row], variables: Sequence[str]
) -> dict[str, Any]:
    """The document of a dashboard.

    Args:
        uid: never changes: links and bookmarks hang on it.
        title: name.
        text: one sentence.
        rows: from top to bottom.
        variables: of `namespace`, `job`, `topic`, `table`.
    """
    panels: list[dict[str, Any]] = []
    top = 0
    for row in rows:
        panels.append(_row(row, len(panels) + 1, top))
        top += 1
        left, lowest = 0, 0
        for panel in row.panels:
            if left + panel.width > _WIDTH:
                left, top, lowest = 0, top + lowest, 0
            place = {"x": left, "y": top, "w": panel.width, "h": panel.height}
            panels.append(_panel(panel, len(panels) + 1, place))
            left += panel.width
            lowest = max(lowest, panel.height)
        top += lowest
    return {
        "uid": uid,
        "title": title,
        "description": text,
        "tags": ["lakeward"],
        "schemaVersion": _SCHEMA_VERSION,
        "version": 1,
        "editable": False,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "browser",
        "links": [
            {
                "type": "dashboards",
                "title": "Lakeward",
                "tags": ["lakeward"],
                "asDropdown": True,
                "includeVars": True,
                "keepTime": True,
            }
        ],
        "annotations": {"list": _annotations()},
        "templating": {"list": [_data_source(), *map(_variable, variables)]},
        "panels": panels,
    }


def _row(row: Row, number: int, top: int) -> dict[str, Any]:
    found: dict[str, Any] = {
        "id": number,
        "type": "row",
        "title": row.title,
        "collapsed": False,
        "gridPos": {"x": 0, "y": top, "w": _WIDTH, "h": 1},
        "panels": [],
    }
    if row.repeat:
        found["repeat"] = row.repeat
    return found


def _panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    defaults: dict[str, Any] = {
        "unit": panel.unit,
        "thresholds": {
            "mode": "absolute",
            "steps": [{"color": color, "value": value} for color, value in panel.steps],
        },
    }
    if panel.kind == "timeseries":
        if panel.minimum is not None:
            defaults["min"] = panel.minimum
        if panel.maximum is not None:
            defaults["max"] = panel.maximum
        defaults["custom"] = {
            "drawStyle": "line",
            "lineWidth": 1,
            "fillOpacity": 30 if panel.stacked else 8,
            "showPoints": "never",
            "spanNulls": False,
            "stacking": {"mode": "normal" if panel.stacked else "none", "group": "A"},
            "thresholdsStyle": {"mode": "line" if len(panel.steps) > 1 else "off"},
        }
    found = {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.text,
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": _OPTIONS[panel.kind] | ({"textMode": "name"} if panel.names else {}),
        "targets": [_target(panel, each, index) for index, each in enumerate(panel.queries)],
    }
    if panel.kind == "table":
        found["transformations"] = _as_columns(panel)
        found["fieldConfig"]["overrides"] = [
            {
                "matcher": {"id": "byName", "options": title},
                "properties": [{"id": "unit", "value": unit}],
            }
            for title, unit in panel.units
        ]
    return found


_OPTIONS: dict[str, dict[str, Any]] = {
    "timeseries": {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
    "stat": {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "colorMode": "background",
        "graphMode": "none",
        "justifyMode": "center",
        "textMode": "value",
    },
    "heatmap": {
        "calculate": False,
        "cellGap": 1,
        "color": {"mode": "scheme", "scheme": "Oranges", "steps": 64, "exponent": 0.5},
        "yAxis": {"unit": "s", "axisPlacement": "left"},
        "legend": {"show": True},
        "tooltip": {"mode": "single"},
    },
    "table": {"showHeader": True, "cellHeight": "sm", "footer": {"show": False}},
}


def _target(panel: Panel, query: Query, index: int) -> dict[str, Any]:
    instant = query.instant or panel.kind == "table"
    formats = {"heatmap": "heatmap", "table": "table"}
    return {
        "refId": chr(ord("A") + index),
        "datasource": _SOURCE,
        "expr": query.expr,
        "legendFormat": query.legend or "__auto",
        "format": formats.get(panel.kind, "time_series"),
        "instant": instant,
        "range": not instant,
    }


def _as_columns(panel: Panel) -> list[dict[str, Any]]:
    names = dict(panel.columns)
    return [
        {"id": "merge", "options": {}},
        {"id": "filterFieldsByName", "options": {"include": {"names": list(names)}}},
        {
            "id": "organize",
            "options": {
                "indexByName": {name: index for index, name in enumerate(names)},
                "renameByName": names,
            },
        },
    ]


def _data_source() -> dict[str, Any]:
    return {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "current": {},
        "hide": 0,
    }


_VALUES = {
    "namespace": "label_values(lakeward_build_info, namespace)",
    "job": 'label_values(lakeward_build_info{namespace=~"$namespace"}, job)',
    "topic": f"label_values(lakeward_source_records_total{{{SCOPE}}}, topic)",
    "table": f"label_values(lakeward_table_state{{{SCOPE}}}, table)",
}


def _variable(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "label": name.capitalize(),
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": _VALUES[name], "refId": name},
        "definition": _VALUES[name],
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*" if name in ("namespace", "job") else None,
        "current": {"text": ["All"], "value": ["$__all"]},
        "hide": 0,
    }


def _annotations() -> list[dict[str, Any]]:
    def one(name: str, color: str, expr: str, title: str) -> dict[str, Any]:
        return {
            "name": name,
            "datasource": _SOURCE,
            "enable": True,
            "hide": False,
            "iconColor": color,
            "expr": expr.replace("{S}", SCOPE),
            "titleFormat": title,
            "step": "60s",
        }

    return [
        one(
            "Starts",
            "blue",
            "changes(lakeward_start_timestamp_seconds{{S}}[1m]) > 0",
            "started",
        ),
        one(
            "Schema changes",
            "purple",
            "sum by (table, change, decision) "
            "(increase(lakeward_schema_changes_total{{S}}[1m])) > 0",
            "{{table}}: {{change}} {{decision}}",
        ),
        one(
            "Alerts",
            "red",
            'ALERTS{alertname=~"Lakeward.*", alertstate="firing", namespace=~"$namespace"}',
            "{{alertname}} {{table}}{{topic}}",
        ),
    ]
