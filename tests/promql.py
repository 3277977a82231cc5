# SPDX-License-Identifier: Apache-2.0
"""What PromQL expressions name, against the catalogue of metrics."""

import re
from collections.abc import Iterator

import promql_parser

from ingest.observe.metrics.metric_table import METRICS, PREFIX

ROWS = {PREFIX + row.name: row for row in METRICS}
SCRAPED = frozenset({"namespace", "job", "instance", "pod"})
"""Labels that the scrape adds."""

_PLACEHOLDERS = {"$__interval": "1m", "$__range": "1h"}


def filled(expression: str, rate: str = "5m", **variables: str) -> str:
    """An expression of a dashboard as Prometheus understands it; variables become `.*`."""
    for name, value in {**_PLACEHOLDERS, "$__rate_interval": rate}.items():
        expression = expression.replace(name, value)
    return re.sub(r"\$\{?(\w+)\}?", lambda reference: variables.get(reference[1], ".*"), expression)


def row_of(series: str):
    """The row of the catalogue that a series is of; None when there is none."""
    if series in ROWS:
        return ROWS[series]
    row = ROWS.get(re.sub(r"_(bucket|sum|count)$", "", series))
    return row if row is not None and row.type == "histogram" else None


def selectors(expression: str) -> list[tuple[str, set[str]]]:
    """Every selector's name and the labels that it asks for."""
    return [
        (selector.name, {matcher.name for matcher in selector.matchers.matchers})
        for selector in _walk(promql_parser.parse(expression))
        if isinstance(selector, promql_parser.VectorSelector)
    ]


def groupings(expression: str) -> set[str]:
    """All labels that the expression groups or joins by."""
    clauses = re.findall(r"\b(?:by|on|without|ignoring|group_left)\s*\(([^)]*)\)", expression)
    return {label.strip() for labels in clauses for label in labels.split(",") if label.strip()}


def mistakes(expression: str) -> list[str]:
    """Why an expression cannot be of our metrics: not in the catalogue, or without that label."""
    problems = []
    allowed_labels = set(SCRAPED)
    for name, labels in selectors(expression):
        if not name.startswith(PREFIX):
            allowed_labels |= labels | {"alertname", "topic", "table", "container"}
            continue
        row = row_of(name)
        if row is None:
            problems.append(f"{name} is not in the catalogue")
            continue
        own_labels = {*row.labels, *SCRAPED} | ({"le"} if name.endswith("_bucket") else set())
        allowed_labels |= own_labels
        problems += [f"{name} has no label {label}" for label in sorted(labels - own_labels)]
    extra_labels = groupings(expression) - allowed_labels
    return problems + [f"nothing has the label {label}" for label in sorted(extra_labels)]


def _walk(node: object) -> Iterator[object]:
    yield node
    for name in ("lhs", "rhs", "expr", "param", "vector_selector", "args"):
        children = getattr(node, name, None)
        for child in children if isinstance(children, list) else [children]:
            if child is not None:
                yield from _walk(child)
