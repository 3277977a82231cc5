# SPDX-License-Identifier: Apache-2.0
"""Rules that only tighten: short modules, no object per row on the data plane, few ignores."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("storage", "changelog", "ingest")
MODULES = sorted(path for name in PACKAGES for path in (ROOT / name).rglob("*.py"))
PAGES = [
    path
    for name in (*PACKAGES, "deploy", "docs", "helm", "tests")
    for path in (ROOT / name).rglob("*.md")
]

DATA_PLANE = (
    "storage/lsm",
    "storage/format/files/data_file.py",
    "storage/format/files/file_columns.py",
    "storage/format/types/casts.py",
    "storage/format/types/default_values.py",
    "storage/format/row/binary_row.py",
    "storage/format/row/bucket.py",
    "storage/format/row/stats.py",
    "storage/format/files/parquet.py",
    "storage/format/files/orc/orc.py",
    "storage/format/avro/rows.py",
    "storage/format/avro/lanes.py",
    "storage/format/files/file_formats.py",
    "storage/table/read/read.py",
    "storage/table/scan/time_travel.py",
    "storage/table/inspect/system/row_tables.py",
    "changelog/",
    "storage/table/write/write.py",
    "storage/table/write/bucket_writers.py",
    "storage/table/write/cross_partition.py",
    "storage/table/write/dynamic_bucket.py",
    "storage/table/write/rows_by_bucket.py",
    "ingest/pipeline/tasks.py",
    "ingest/decode/types/conversions.py",
    "ingest/decode/outcome.py",
    "ingest/tools/verify/compare.py",
)

PER_ROW = {"to_pylist", "as_py", "iterrows", "itertuples"}

ALLOWED = {
    # single scalars: frontier and binary search of a merge, a few hundred a merge
    ("storage/lsm/key_order.py", "as_py"): 1,
    # rows of keys that only the row-wise tier of a rare function can fold (docs/adr/storage/0013)
    ("storage/lsm/merge_functions/aggregators/function.py", "to_pylist"): 1,
    # the length of the longest text of a batch
    ("storage/format/row/stats.py", "as_py"): 1,
    # one per distinct partition of a batch
    ("storage/table/write/rows_by_bucket.py", "as_py"): 1,
    # a whole column's verdict, and the one value that an error names
    ("storage/format/types/casts.py", "as_py"): 6,
    # a mask is None when no value is a placeholder; the limits of a column
    ("ingest/decode/types/conversions.py", "as_py"): 3,
    # offsets of the few rows whose key changed or whose record fails; the ends of a range
    ("ingest/decode/outcome.py", "to_pylist"): 2,
    ("ingest/decode/outcome.py", "as_py"): 2,
    # the filter of rows that a check reads again
    ("ingest/tools/verify/compare.py", "to_pylist"): 1,
    ("ingest/tools/verify/compare.py", "as_py"): 1,
    # columns of the rare kinds that no array conversion knows, and booleans in other spellings
    ("ingest/decode/types/conversions.py", "to_pylist"): 2,
}

TYPE_IGNORES = 7


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_modules_are_short_and_say_what_they_own():
    for path in MODULES:
        text, name = path.read_text(encoding="utf-8"), relative(path)
        assert text.startswith("# SPDX-License-Identifier: Apache-2.0\n"), name
        assert ast.get_docstring(ast.parse(text)), f"{name} has no docstring"
        assert len(text.splitlines()) <= 1050, name


def test_no_python_object_per_row_on_the_data_plane():
    found: dict[tuple[str, str], int] = {}
    for path in MODULES:
        name = relative(path)
        if not name.startswith(DATA_PLANE):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr in PER_ROW:
                found[(name, node.attr)] = found.get((name, node.attr), 0) + 1
    assert found == ALLOWED


def test_type_ignores_do_not_grow():
    count = sum(path.read_text(encoding="utf-8").count("# type: ignore") for path in MODULES)
    assert count <= TYPE_IGNORES


def test_the_repository_speaks_of_the_product_alone():
    """No machine paths and no other people's hosts in what is shipped."""
    banned = ("/work/", "/root/", "pypi.org", "repo1.maven", "files.pythonhosted", "../shared")
    rooms = [
        path
        for name in ("deploy", "helm")
        for path in (ROOT / name).rglob("*.*")
        if "__pycache__" not in path.parts
    ]
    alone = [*ROOT.glob("*.md"), ROOT / "Makefile", ROOT / "requirements.lock"]
    for path in [*MODULES, *PAGES, *rooms, *alone]:
        text = path.read_text(encoding="utf-8")
        for word in banned:
            assert word not in text, (relative(path), word)


def test_pages_name_no_page_that_is_not_there():
    known = {path.name for path in [*ROOT.glob("*.md"), *PAGES]}
    for path in [*ROOT.glob("*.md"), *PAGES]:
        named = set(re.findall(r"\b[A-Z_]+\.md\b", path.read_text(encoding="utf-8")))
        assert named <= known, relative(path)


def test_the_map_lists_every_decision():
    decisions = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").partition("## Decisions")[2]
    listed = {}
    for part in decisions.split("\n- ")[1:]:
        room = re.search(r"`docs/adr/(\w+)/", part).group(1)
        listed[room] = set(re.findall(r"`(?:docs/adr/\w+/)?(\d{4})`", part))
    assert listed == {
        room.name: {path.name[:4] for path in room.glob("*.md")}
        for room in (ROOT / "docs/adr").iterdir()
    }
