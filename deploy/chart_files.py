# SPDX-License-Identifier: Apache-2.0
"""Files of the chart that follow from others: JSON schema, table of values, alerts, dashboards.

    python -m deploy.chart_files [--write | --check]

The schema and the table in the chart's README come from the comments of `values.yaml` (its head
says how they are written); alerts and dashboards are copies of those in `deploy/`, because a chart
can only read files inside itself.
"""

import dataclasses
import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
CHART = ROOT / "helm" / "lakeward"
ALERTS = ROOT / "deploy" / "alerts"
DASHBOARDS = ROOT / "deploy" / "dashboards"

_BEGIN, _END = "<!-- values: begin -->", "<!-- values: end -->"
_KEY = re.compile(r"^( *)([A-Za-z][A-Za-z0-9]*):(\s|$)")
_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array"}
_DRAFT = "http://json-schema.org/draft-07/schema#"


@dataclasses.dataclass(slots=True)
class Value:
    """One key of `values.yaml`.

    Attributes:
        path: names from the top.
        default: the value there.
        section: heading above it.
        doc: its description; empty for maps that only hold others.
        extra: what its schema has beside the type.
        is_open: whether anything is allowed below it.
    """

    path: tuple[str, ...]
    default: Any
    section: str
    doc: str = ""
    extra: dict[str, Any] = dataclasses.field(default_factory=dict)
    is_open: bool = False

    @property
    def is_map(self) -> bool:
        """Whether it holds other values of the chart."""
        return isinstance(self.default, dict) and not self.is_open and not self.extra


class _Comment:
    """The comment lines above a key."""

    def __init__(self) -> None:
        self.section = ""
        self.clear()

    def clear(self) -> None:
        self._doc: list[str] = []
        self._extra: dict[str, Any] = {}
        self._open = False
        self._started = False

    def add(self, text: str) -> None:
        if text.startswith("== "):
            self.section = text[3:]
        elif text.startswith("-- "):
            self._doc, self._started = [text[3:]], True
        elif text.startswith("@schema "):
            self._extra = json.loads(text[len("@schema ") :])
        elif text == "@open":
            self._open = True
        elif self._started and text:
            self._doc.append(text)

    def value(self, path: tuple[str, ...], default: object) -> Value:
        return Value(path, default, self.section, " ".join(self._doc), self._extra, self._open)


def read_values(text: str) -> list[Value]:
    """The keys of `values.yaml` in their order, with what their comments say.

    Raises:
        SystemExit: a value has no description.
    """
    defaults = yaml.safe_load(text)
    found: list[Value] = []
    comment = _Comment()
    above: list[str] = []
    closed: tuple[str, ...] = ()
    for line in text.splitlines():
        if line.lstrip().startswith("#"):
            comment.add(line.strip().removeprefix("#").strip())
            continue
        match = _KEY.match(line)
        if match is None:
            comment.clear()
            continue
        del above[len(match.group(1)) // 2 :]
        above.append(match.group(2))
        path = tuple(above)
        if closed and path[: len(closed)] == closed:
            continue
        value = comment.value(path, _at(defaults, path))
        comment.clear()
        closed = () if value.is_map else path
        if not value.is_map and not value.doc:
            raise SystemExit(f"values.yaml: `{'.'.join(path)}` has no description")
        found.append(value)
    return found


def _at(document: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        document = document[name]
    return document


def schema_of(values: list[Value]) -> dict[str, Any]:
    """JSON schema of the values: closed, but for what is handed on as it is."""
    root: dict[str, Any] = {"$schema": _DRAFT, "title": "Values of the chart lakeward"}
    root |= {"type": "object", "additionalProperties": False, "properties": {}}
    for value in values:
        parent = root
        for name in value.path[:-1]:
            parent = parent["properties"][name]
        parent["properties"][value.path[-1]] = _schema(value)
    return root


def _schema(value: Value) -> dict[str, Any]:
    if value.is_map:
        closed = value.path != ("global",)  # other charts of an umbrella have theirs there
        return {"type": "object", "additionalProperties": not closed, "properties": {}}
    kind = "object" if isinstance(value.default, dict) else _TYPES[type(value.default)]
    # null takes a default away: `helm` removes the key, but checks the schema before
    types = [kind, "null"] if value.is_open else kind
    return {"type": types, "description": value.doc, **value.extra}


def table_of(values: list[Value]) -> str:
    """The values as Markdown tables, one for each section."""
    lines: list[str] = []
    section = ""
    for value in values:
        if value.is_map:
            continue
        if value.section != section:
            section = value.section
            lines += ["", f"### {section}", "", "| value | default | |", "|---|---|---|"]
        default = json.dumps(value.default, ensure_ascii=False).replace("|", "\\|")
        doc = value.doc.replace("|", "\\|") + _choices(value.extra)
        lines.append(f"| `{'.'.join(value.path)}` | `{default}` | {doc} |")
    return "\n".join(lines).strip() + "\n"


def _choices(extra: Mapping[str, Any]) -> str:
    words = [f"`{word}`" for word in extra.get("enum", ()) if word]
    return f" One of {', '.join(words)}." if words else ""


def _copies() -> Iterator[tuple[Path, str]]:
    for path in sorted(ALERTS.glob("*.yaml")):
        yield CHART / "files" / "alerts" / path.name, path.read_text(encoding="utf-8")
    for path in sorted(DASHBOARDS.glob("*.json")):
        yield CHART / "files" / "dashboards" / path.name, path.read_text(encoding="utf-8")


def expected_files() -> dict[Path, str]:
    """What every generated file must hold."""
    values = read_values((CHART / "values.yaml").read_text(encoding="utf-8"))
    schema = json.dumps(schema_of(values), indent=2, ensure_ascii=False) + "\n"
    readme = CHART / "README.md"
    text = readme.read_text(encoding="utf-8")
    before, _, rest = text.partition(_BEGIN)
    after = rest.partition(_END)[2]
    page = f"{before}{_BEGIN}\n\n{table_of(values)}\n{_END}{after}"
    return {CHART / "values.schema.json": schema, readme: page, **dict(_copies())}


def _superfluous(expected: Mapping[Path, str]) -> list[Path]:
    there = [path for path in (CHART / "files").rglob("*") if path.is_file()]
    return sorted(path for path in there if path not in expected)


def main(arguments: list[str]) -> int:
    """Write or check; the exit code."""
    expected = expected_files()
    stale = [p for p, t in expected.items() if not p.exists() or p.read_text("utf-8") != t]
    superfluous = _superfluous(expected)
    if "--write" not in arguments:
        for path in [*stale, *superfluous]:
            print(
                f"{path.relative_to(ROOT)} is not what `python -m deploy.chart_files --write` makes"
            )
        return 1 if stale or superfluous else 0
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(expected[path], encoding="utf-8")
    for path in superfluous:
        path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
