# SPDX-License-Identifier: Apache-2.0
"""The configuration reference as Markdown, written from the declarations alone.

python -m ingest.config.settings_page [--write | --check]
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ingest.config.rule_settings import Route, TableRule
from ingest.config.setting import Setting, docs
from ingest.config.settings import ROUTE_SETTINGS, SETTINGS, SOURCE_TYPE, TABLE_SETTINGS, Settings

__all__ = ["SECTIONS", "main", "settings_page"]

_PAGE = Path(__file__).resolve().parents[2] / "docs/reference/configuration.md"

SECTIONS = {
    "pipeline": "What the stream is called, where it keeps its place and how often it commits.",
    "source": "Where events come from and what the producer made of them.",
    "sink": "Where tables are written.",
    "bad.records": "What happens to records that cannot be decoded.",
    "maintenance": "What is done to tables beside writing them.",
    "metrics": "The HTTP endpoint with metrics, health, readiness and status.",
    "control": "What may be done over the endpoint, besides looking "
    "(`docs/reference/status-api.md`).",
    "alerts": "Who is told when something happens that a person should know.",
    "log": "Logs go to standard error.",
    "spark": "The engine. Defaults run everything on this machine.",
}

_HEAD = """\
# Configuration

<!-- written by `python -m ingest.config.settings_page --write`; do not edit -->

One YAML file describes one pipeline. This one is enough:

```yaml
source: { type: kafka, bootstrap.servers: kafka:9092, topics.pattern: 'shop\\..*' }
sink: { warehouse: /data/warehouse }
pipeline: { name: shop }
```

- Sections may be nested or dotted: `sink: {warehouse: /data}` is `sink.warehouse: /data`.
- Several files (`-c base.yaml -c prod.yaml`) are merged; the later one wins.
- Precedence: `--set key=value`, then the environment, then the files, then the default. The
  variable of `source.bootstrap.servers` is `LAKEWARD__SOURCE__BOOTSTRAP_SERVERS`.
- `${NAME}` is an environment variable, `${NAME:-text}` one with a default, `${file:/path}` a file's
  content (never shown), `$${` a literal `${`.
- Durations need a unit (`500ms`, `30s`, `5m`, `12h`, `3d`); sizes may have one (`64mb`, `1gb`).
- An unknown key is an error. `lakeward validate -c FILE` prints what is in force and where from.
- `lakeward schema > lakeward.schema.json` prints a JSON Schema. Editors with a YAML language server
  complete and check a file by it that begins with
  `# yaml-language-server: $schema=lakeward.schema.json`.
"""

_ROW_HEAD = "| key | type | default | meaning |\n|---|---|---|---|"

_ROUTE = """\
## route

A list of rules; the first whose pattern fits the whole address of a source table says where its
rows go. Without rules a table goes to `database.table` of its own name. With rules, records of a
table that none of them takes are counted and left out.

```yaml
route:
  - source-table: shop.inventory.(.*)
    sink-table: ods.inv_$1
  - source-table: shop.orders_[0-9]+.orders        # 32 shards, one table
    sink-table: ods.orders
    shard: { column: _shard, value: '${source.db}' }
```

Equal keys of two source tables in one table would overwrite each other, so a rule that lets several
in needs a shard column or the statement that keys are unique.
"""

_TABLES = """\
## tables

A list of rules for target tables. Of several rules that match a table, later ones win, key by key.

```yaml
tables:
  - match: shop.*
    table.properties: { bucket: 4 }
  - match: shop.stock_moves
    primary.key: [move_id]
```
"""


def settings_page() -> str:
    """The whole page, with a final newline."""
    parts, texts = [_HEAD], {SOURCE_TYPE.key: SOURCE_TYPE.doc, **docs(Settings)}
    for section, about in SECTIONS.items():
        rows = [row for row in SETTINGS if row.key.startswith(section + ".")]
        parts.append(f"## {section}\n\n{about}\n\n{_rows(rows, texts)}\n")
    parts.append(f"{_ROUTE}\n{_rows(ROUTE_SETTINGS, docs(Route))}\n")
    parts.append(f"{_TABLES}\n{_rows(TABLE_SETTINGS, docs(TableRule))}\n")
    return "\n".join(parts)


def _rows(rows: Iterable[Setting], texts: Mapping[str, str]) -> str:
    return "\n".join([_ROW_HEAD, *(_row(row, texts[row.key]) for row in rows)])


def _row(row: Setting, text: str) -> str:
    default = "**required**" if row.required else _default(row.default)
    kind = f"{row.kind.name} [{row.unit}]" if row.unit else row.kind.name
    return f"| `{row.key}` | {kind} | {default} | {text} |"


def _default(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, Mapping):
        return ", ".join(f"`{name}: {item}`" for name, item in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(f"`{item}`" for item in value)
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value}`"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the reference page, or with `--check` say whether it is current."""
    mode = list(sys.argv[1:] if arguments is None else arguments) or ["--write"]
    if mode == ["--write"]:
        _PAGE.write_text(settings_page(), encoding="utf-8")
        return 0
    if mode != ["--check"]:
        sys.stderr.write("usage: python -m ingest.config.settings_page [--write | --check]\n")
        return 2
    if not _PAGE.exists() or _PAGE.read_text(encoding="utf-8") != settings_page():
        sys.stderr.write(f"{_PAGE.name} is out of date: run `make docs`\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
