# SPDX-License-Identifier: Apache-2.0
"""Figures of the code base: size, layout, layers, start-up; `--check` verifies the limits.

python -m tests.house            # print all figures, as a table
python -m tests.house --json     # the same for machines
python -m tests.house --check    # structural limits only; part of `make check`
"""

import argparse
import ast
import dataclasses
import json
import resource
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path

from ingest.config.setting import fields_declared
from ingest.config.settings import SOURCE_TYPE, Route, Settings, TableRule
from storage.options.table import TABLE_OPTIONS
from tests.unit.ingest.debezium_events import message
from tests.unit.ingest.table_pipeline import TablePipeline

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("ingest", "storage", "changelog")
_INGEST = (
    "errors compiled config source decode transform schema state pipeline observe kubernetes daemon"
    " tools cli"
)
LAYERS = {"ingest": _INGEST.split(), "storage": ["io", "format", "lsm", "table", "catalog", "sql"]}
"""Rooms from the lowest to the highest: what may be imported stands to the left."""

FILES = 350
FILES_PER_FOLDER = 20
IMPORTS_PER_MODULE = 25
EVENT_MODULES = 20
"""Modules of `ingest` that one event passes, from Kafka to the commit."""

LINES = {"ingest": 63_053, "storage": 64_230, "changelog": 2_900}
"""Most lines of each package; lowered by every commit that removes some."""


def modules() -> dict[str, Path]:
    """Dotted names of all product modules with their files."""
    files = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if "automatic" in path.parts:
                continue
            name = path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
            files[name.removesuffix(".__init__")] = path
    return files


def imports(files: dict[str, Path]) -> set[tuple[str, str]]:
    """Pairs (importer, imported) among the product's modules."""
    pairs = set()
    for name, path in files.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                targets = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                targets = [f"{node.module}.{alias.name}" for alias in node.names]
            else:
                continue
            for target in targets:
                while target and target not in files:
                    target = target.rpartition(".")[0]
                if target and target != name:
                    pairs.add((name, target))
    return pairs


def upward(pairs: set[tuple[str, str]]) -> list[str]:
    """Imports against the layers."""
    violations = []
    for importer, imported in sorted(pairs):
        source, target = importer.split("."), imported.split(".")
        order = LAYERS.get(source[0])
        if order and source[0] == target[0] and len(source) > 1 and len(target) > 1:
            ranks = [order.index(part) if part in order else -1 for part in (source[1], target[1])]
            if -1 not in ranks and ranks[0] < ranks[1]:
                violations.append(f"{importer} -> {imported}")
    return violations


def lines(path: Path) -> int:
    """Lines of one file."""
    return len(path.read_text(encoding="utf-8").splitlines())


def folders(files: dict[str, Path]) -> Counter:
    """Python files by folder."""
    return Counter(path.parent.relative_to(ROOT).as_posix() for path in files.values())


def cpu_seconds(*command: str) -> float:
    """CPU seconds [user + system] of a command and its children."""
    usage_before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    usage_after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return round(
        usage_after.ru_utime + usage_after.ru_stime - usage_before.ru_utime - usage_before.ru_stime,
        2,
    )


def event_modules() -> list[str]:
    """Modules of `ingest` that run code for one more event of a known table, decode to commit."""
    module_names: set[str] = set()

    def note(frame, event, _argument):
        if event == "call":
            module_names.add(frame.f_globals.get("__name__", ""))

    with tempfile.TemporaryDirectory() as directory:
        pipeline = TablePipeline(Path(directory), "", "shop.public.orders")
        for number in range(2):
            record = (b'{"id": %d}' % number, message("c", after={"id": number, "name": "x"}))
            if number:
                threading.setprofile(note)
                sys.setprofile(note)
            pipeline.feed([record])
        sys.setprofile(None)
        threading.setprofile(None)
    return sorted(name for name in module_names if name.startswith("ingest."))


def declarations() -> dict[str, int]:
    """Settings of a pipeline and options of tables: declarations, and keys that they declare."""
    classes, rows = (
        [Settings, TableRule, Route],
        [SOURCE_TYPE.key, *(row.key for row in TABLE_OPTIONS)],
    )
    for cls in classes:
        rows += [row.key for row in fields_declared(cls).values()]
        for field in dataclasses.fields(cls):
            classes += [part for part in field.metadata.get("section", ()) if part not in classes]
    return {"declarations": len(rows), "keys": len(set(rows))}


def figures() -> dict[str, object]:
    """All figures."""
    files = modules()
    pairs = imports(files)
    importers = Counter(imported for _, imported in pairs)
    size = Counter()
    for name, path in files.items():
        size[name.partition(".")[0]] += lines(path)
    fullest = folders(files).most_common(3)
    tests = list((ROOT / "tests").rglob("*.py"))
    event = event_modules()
    with tempfile.TemporaryDirectory() as warehouse:
        starts = {
            "lakeward --help": cpu_seconds(sys.executable, "-m", "ingest.cli.main", "--help"),
            "lakeward table ls": cpu_seconds(
                sys.executable, "-m", "ingest.cli.main", "table", "ls", warehouse
            ),
        }
    return {
        "lines": dict(size) | {"product": sum(size.values())},
        "files": len(files),
        "fullest folders": dict(fullest),
        "test lines": sum(map(lines, tests)),
        "test files": len(tests),
        "imports against the layers": len(upward(pairs)),
        "most imports of a module": max(
            Counter(importer for importer, _ in pairs).items(), key=lambda item: item[1]
        ),
        "modules with one importer": sum(1 for name in files if importers[name] == 1),
        "settings and options": declarations(),
        "modules of ingest for one event": len(event),
        "lines of those": sum(lines(files[name]) for name in event if name in files),
        "CPU seconds": starts,
    }


def violated_limits() -> list[str]:
    """Structural limits that do not hold."""
    files = modules()
    pairs = imports(files)
    faults = [f"imports upwards: {pair}" for pair in upward(pairs)]
    faults += [
        f"{folder} has {count} Python files, at most {FILES_PER_FOLDER}"
        for folder, count in sorted(folders(files).items())
        if count > FILES_PER_FOLDER
    ]
    faults += [
        f"{name} imports {count} modules of the product, at most {IMPORTS_PER_MODULE}"
        for name, count in sorted(Counter(importer for importer, _ in pairs).items())
        if count > IMPORTS_PER_MODULE
    ]
    if len(files) > FILES:
        faults.append(f"{len(files)} Python files, at most {FILES}")
    event = event_modules()
    if len(event) > EVENT_MODULES:
        faults.append(f"one event passes {len(event)} modules, at most {EVENT_MODULES}: {event}")
    for package, limit in LINES.items():
        count = sum(lines(path) for name, path in files.items() if name.startswith(package))
        if count > limit:
            faults.append(f"{package} has {count} lines, {limit} were agreed on")
    return faults


def main() -> int:
    """Print figures, or check the limits."""
    parser = argparse.ArgumentParser(prog="python -m tests.house", description=__doc__)
    parser.add_argument("--check", action="store_true", help="check structural limits only")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    if arguments.check:
        faults = violated_limits()
        print("\n".join(faults) or "structure: all limits hold")
        return 1 if faults else 0
    values = figures()
    if arguments.json:
        print(json.dumps(values, indent=2))
        return 0
    for name, value in values.items():
        print(f"{name:36} {value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
