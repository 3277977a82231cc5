# SPDX-License-Identifier: Apache-2.0
"""Each claim of the feature table leads to a test; others' columns have sources."""

import ast
import functools
import pathlib
import re

ROOT = pathlib.Path(__file__).parents[2]
PAGE = ROOT / "docs/reference/features.md"
CODE = re.compile(r"\b[PFHDIOTRBLG]\d{1,2}\b")
LINK = re.compile(r"\[(\w+)\]\((\.\./\.\./tests/[\w/]+\.py)\)")


def table_rows(text, head="Capability"):
    """Cells of each row below the heads that begin so."""
    found = []
    inside = False
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith(f"| {head} |"):
            inside = True
        elif not line.startswith("|"):
            inside = False
        elif inside and not line.startswith("|---"):
            found.append(cells)
    return found


@functools.cache
def names_of_tests(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


ROWS = table_rows(PAGE.read_text(encoding="utf-8"))


def test_the_others_columns_are_filled_and_their_sources_are_explained():
    assert len(ROWS) > 60
    explained = set(CODE.findall(PAGE.read_text(encoding="utf-8").partition("\n## Sources\n")[2]))
    assert len(explained) > 30
    wrong = []
    for capability, _, *others, source in ROWS:
        if len(others) != 8 or not all(others):
            wrong.append((capability, others))
        wrong += [(capability, code) for code in CODE.findall(source) if code not in explained]
    assert not wrong


def test_every_claim_is_linked_to_a_test_that_exists():
    wrong = []
    pains = table_rows(PAGE.read_text(encoding="utf-8"), "Pain")
    assert len(pains) == 10
    surfaces = table_rows(PAGE.read_text(encoding="utf-8"), "Surface")
    assert len(surfaces) > 15
    for capability, claim, *_ in ROWS + pains + surfaces:
        said = claim.partition("<br>")[0]
        marks = re.match(r"[YPN](/[YPN])*(?![^:;, ])", said)
        links = LINK.findall(claim)
        if not marks or claim.count("](") != len(links):
            wrong.append((capability, claim))
        elif bool(links) == (set(marks[0]) == {"N"}):
            wrong.append((capability, "a claim without link, or a link without claim"))
        elif "P" in marks[0] and ":" not in said:
            wrong.append((capability, "partial, but not why"))
        for name, target in links:
            file = (PAGE.parent / target).resolve()
            if (
                not file.is_file()
                or not name.startswith("test_")
                or name not in names_of_tests(file)
            ):
                wrong.append((capability, f"no {name} in {target}"))
    assert not wrong
