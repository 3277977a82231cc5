# SPDX-License-Identifier: Apache-2.0
"""The part of `requirements.lock` that goes into the image.

`deploy/requirements.lock` holds what Lakeward, `lakeward verify`, Hive catalogs, HDFS and the
catalog service need,
`deploy/requirements-build.lock` what builds the wheel. Both repeat pins and hashes of the whole
lock, which has tests and tools, too.

    python -m tests.image.image_lock [--write]
"""

import importlib.metadata
import re
import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
WHOLE = ROOT / "requirements.lock"
RUNTIME = ROOT / "deploy" / "requirements.lock"
BUILD = ROOT / "deploy" / "requirements-build.lock"
HEAD = "# SPDX-License-Identifier: Apache-2.0\n# Of requirements.lock, by `make docs`: {what}\n"


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def needed_by(roots: list[str]) -> set[str]:
    """Names of all packages that the roots need here, by what is installed."""
    seen: set[tuple[str, frozenset[str]]] = set()
    open_ends = [Requirement(root) for root in roots]
    while open_ends:
        wanted = open_ends.pop()
        extras = frozenset(wanted.extras)
        name = canonical(wanted.name)
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        for line in importlib.metadata.requires(name) or ():
            child = Requirement(line)
            asked = [{"extra": extra} for extra in ("", *extras)]
            if child.marker is None or any(child.marker.evaluate(extra) for extra in asked):
                open_ends.append(child)
    return {name for name, _ in seen}


def blocks_of(text: str) -> dict[str, str]:
    """Name to its lines in a lock: pins, markers and hashes."""
    blocks: dict[str, str] = {}
    name = ""
    for line in text.splitlines(keepends=True):
        start = re.match(r"([A-Za-z0-9][A-Za-z0-9._-]*)==", line)
        if start:
            name = canonical(start.group(1))
        if name and (start or line.startswith((" ", "\t"))):
            blocks[name] = blocks.get(name, "") + line
    return blocks


def locks() -> dict[Path, str]:
    """The two files as they should be."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    asked = project["project"]["dependencies"]
    extras = project["project"]["optional-dependencies"]
    asked = [*asked, *extras["verify"], *extras["hive"], *extras["hdfs"]]
    asked += extras["catalog-service"]
    whole = blocks_of(WHOLE.read_text())
    made = {}
    for path, roots, what in (
        (RUNTIME, asked, "what is installed in the image"),
        (BUILD, project["build-system"]["requires"], "what builds the wheel"),
    ):
        names = sorted(needed_by(roots))
        made[path] = HEAD.format(what=what) + "".join(whole[name] for name in names)
    return made


def main() -> int:
    stale = [path for path, text in locks().items() if _read(path) != text]
    for path, text in locks().items():
        if "--write" in sys.argv:
            path.write_text(text)
    if stale and "--write" not in sys.argv:
        print("run `make docs`: " + ", ".join(str(path.relative_to(ROOT)) for path in stale))
        return 1
    return 0


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


if __name__ == "__main__":
    sys.exit(main())
