# SPDX-License-Identifier: Apache-2.0
"""What the panels of the dashboards show of a daemon: every query, asked of a real Prometheus."""

import dataclasses
import math
import re

from deploy.write_dashboards import DASHBOARDS
from tests.panels.prometheus_server import PrometheusServer
from tests.promql import filled

RATE = "20s"
STEP_S = 1.0


@dataclasses.dataclass(frozen=True)
class Answered:
    """One panel and the series of its queries, each with the name that its legend gives."""

    dashboard: str
    panel: dict
    series: list[list[dict]]

    @property
    def title(self) -> str:
        return f"{self.dashboard}: {self.panel['title']}"

    def empty(self) -> list[str]:
        """Titles of queries without a number."""
        return [
            f"{self.title}: {target['legendFormat'].replace('__auto', target['refId'])}"
            for target, found in zip(self.panel["targets"], self.series, strict=True)
            if not any(math.isfinite(float(v)) for one in found for _, v in one["values"])
        ]


def ask_everything(
    server: PrometheusServer, start: float, end: float, table: str = ".*"
) -> list[Answered]:
    """Every panel of every dashboard; panels of a repeated row for one table."""
    found = []
    for name, document in DASHBOARDS.items():
        repeated = False
        for panel in document["panels"]:
            if panel["type"] == "row":
                repeated = "repeat" in panel
                continue
            chosen = table if repeated else ".*"
            found.append(_asked(server, name, panel, start, end, chosen))
    return found


def _asked(
    server: PrometheusServer, name: str, panel: dict, start: float, end: float, table: str
) -> Answered:
    series = []
    for target in panel["targets"]:
        expression = filled(target["expr"], rate=RATE, table=table)
        if target["instant"]:
            one = server.instant(expression, end)
        else:
            one = server.span(expression, start, end, STEP_S)
        for each in one:
            each["name"] = _legend(target["legendFormat"], each["metric"])
        series.append(one)
    return Answered(name, panel, series)


def _legend(text: str, labels: dict[str, str]) -> str:
    if text == "__auto":
        return ", ".join(f"{k}={v}" for k, v in labels.items() if k != "__name__")
    return re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1], ""), text)
