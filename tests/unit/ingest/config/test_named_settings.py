# SPDX-License-Identifier: Apache-2.0
"""Settings that errors, hints, help texts and pages name exist: whoever follows them finds them."""

import ast
import re
from pathlib import Path

import pytest

from ingest.config.settings import SETTINGS
from storage.options.table import TABLE_OPTIONS

ROOT = Path(__file__).parents[4]
KEYS = {setting.key for setting in SETTINGS}
MAPS = {setting.key for setting in SETTINGS if setting.kind.mapping}
HEADS = sorted({key.partition(".")[0] for key in KEYS} - {"spark"})
"""Without Spark's own: `spark.conf` takes any of its properties."""

NAMED = re.compile(rf"`((?:{'|'.join(HEADS)})(?:\.[A-Za-z0-9_*-]+)+)(?:: [^`]+|=[^`]+)?`")
OF_EVENTS = {"db", "table", "lsn", "name", "snapshot", "ts_ms", "ts_*"}
"""Fields of the block `source` of Debezium's events."""

OTHERS = {"alerts.py", "pipeline.yaml", "control.key", "log.mining.strategy"} | {
    option.key for option in TABLE_OPTIONS
}
"""Files, keys of the chart's secret, an option of Debezium, and options of tables."""


def exists(name):
    if name in KEYS or name in OTHERS:
        return True
    if name.startswith("source.") and name.removeprefix("source.") in OF_EVENTS:
        return True
    if any(name.startswith(f"{key}.") for key in MAPS):
        return True
    section = name.removesuffix(".*")
    return any(key.startswith(f"{section}.") for key in KEYS)


def wrong(text):
    return sorted({name for name in NAMED.findall(text) if not exists(name)})


def texts(path):
    """String literals of a module, pieces that stand beside each other as one."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


@pytest.mark.parametrize("package", ["ingest", "storage", "changelog", "deploy"])
def test_settings_named_in_sources_exist(package):
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in sorted((ROOT / package).rglob("*.py"))
        for text in texts(path)
        for name in wrong(text)
    }
    assert not found


def test_settings_named_in_pages_exist():
    pages = [
        page
        for pattern in ("*.md", "docs/**/*.md", "deploy/*.md")
        for page in sorted(ROOT.glob(pattern))
    ]
    assert len(pages) > 20
    found = {
        f"{page.relative_to(ROOT)}: {name}" for page in pages for name in wrong(page.read_text())
    }
    assert not found


def test_a_name_that_does_not_exist_is_found():
    text = "check `source.scan.startup.specific-offsets`, `sink.type.mappings: x` or `metrics.no.*`"
    assert wrong(text) == [
        "metrics.no.*",
        "sink.type.mappings",
        "source.scan.startup.specific-offsets",
    ]
    assert wrong("`source.scan.startup.offsets`, `log.format=json`, `metrics.*`") == []
    assert "sink.table.properties" in MAPS
