# SPDX-License-Identifier: Apache-2.0
"""The configuration reference as Markdown, generated from the declarations.

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
    "pipeline": "Name, checkpoint, trigger and lifecycle of the stream.",
    "source": "Source of the events, their format, and the configuration of their producer.",
    "sink": "Warehouse, tables and columns.",
    "bad.records": "Handling of records that cannot be decoded.",
    "maintenance": "Maintenance of tables by the daemon.",
    "metrics": "HTTP endpoint with metrics, health, readiness and status.",
    "control": "Control over the HTTP endpoint (`docs/reference/status-api.md`).",
    "alerts": "Webhooks for events that need attention.",
    "log": "Logs are written to standard error.",
    "spark": "Spark. By default it runs in local mode on this machine.",
}

_HEAD = """\
# Configuration

<!-- written by `python -m ingest.config.settings_page --write`; do not edit -->

One YAML file configures one pipeline. A minimal configuration:

```yaml
source: { type: kafka, bootstrap.servers: kafka:9092, topics.pattern: 'shop\\..*' }
sink: { warehouse: /data/warehouse }
pipeline: { name: shop }
```

- Sections may be nested or dotted: `sink: {warehouse: /data}` is `sink.warehouse: /data`.
- Several files (`-c base.yaml -c prod.yaml`) are merged; later files override earlier ones.
- Precedence: `--set key=value`, then the environment, then the files, then the default. The
  variable of `source.bootstrap.servers` is `LAKEWARD__SOURCE__BOOTSTRAP_SERVERS`.
- `${NAME}` is an environment variable, `${NAME:-text}` one with a default, `${file:/path}` the
  content of a file (never shown), `$${` a literal `${`.
- Durations need a unit (`500ms`, `30s`, `5m`, `12h`, `3d`); sizes may have one (`64mb`, `1gb`).
- An unknown key is an error. `lakeward validate -c FILE` prints all settings in force with their
  origin.
- `lakeward schema > lakeward.schema.json` prints a JSON Schema. Editors with a YAML language server
  complete and check files whose first line is
  `# yaml-language-server: $schema=lakeward.schema.json`.
"""

_ROW_HEAD = "| key | type | default | meaning |\n|---|---|---|---|"

_ROUTE = """\
## route

A list of rules. The first rule whose pattern matches the full address of a source table determines
its target table. Without rules a source table is written to the table `database.table` of the same
name. With rules, records of source tables that no rule matches are counted and skipped.

```yaml
route:
  - source-table: shop.inventory.(.*)
    sink-table: ods.inv_$1
  - source-table: shop.orders_[0-9]+.orders        # 32 shards, one table
    sink-table: ods.orders
    shard: { column: _shard, value: '${source.db}' }
```

Rows with equal keys of two source tables would overwrite each other in a shared table. A rule that
matches several source tables therefore needs a shard column or `shard: {keys.are.unique: true}`.
"""

_TABLES = """\
## tables

A list of rules for target tables. If several rules match a table, later rules override earlier ones
key by key.

```yaml
tables:
  - match: shop.*
    table.properties: { bucket: 4 }
  - match: shop.stock_moves
    primary.key: [move_id]
```
"""


def settings_page() -> str:
    """Return the page, with a final newline."""
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
    """Write the reference page, or with `--check` test whether it is up to date."""
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
