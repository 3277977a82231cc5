# SPDX-License-Identifier: Apache-2.0
"""A bill of materials of the image's Python environment.

    python -m tests.image.sbom CYCLONEDX-PY FILE

`cyclonedx-py` describes the installed environment with its licences; what is not in the image's
lock (tests, tools) is taken out, and the jars that come inside pyspark are put in, each with its
hash. Debian's packages are not in it: `dpkg -l` in the image names them.
"""

import hashlib
import importlib.util
import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.image.image_lock import ROOT, RUNTIME, blocks_of, canonical


def bill(cyclonedx: str, python: str = sys.executable) -> dict[str, Any]:
    """CycloneDX 1.6 of what is in the image.

    Args:
        cyclonedx: the program.
        python: of an environment that has all that is in the image.
    """
    command = [cyclonedx, "environment", python, "--pyproject", str(ROOT / "pyproject.toml")]
    command += ["--spec-version", "1.6", "--output-reproducible", "--validate", "-o", "-"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    document: dict[str, Any] = json.loads(done.stdout)
    kept = set(blocks_of(RUNTIME.read_text()))
    document["components"] = [e for e in document["components"] if canonical(e["name"]) in kept]
    document["components"] += sorted(jars(), key=lambda each: each["bom-ref"])
    root = document["metadata"]["component"]["bom-ref"]
    known = {root, *(each["bom-ref"] for each in document["components"])}
    document["dependencies"] = [
        {**each, "dependsOn": [ref for ref in each.get("dependsOn", ()) if ref in known]}
        for each in document["dependencies"]
        if each["ref"] in known
    ]
    return document


def jars() -> Iterator[dict[str, Any]]:
    """The jars of pyspark, by the coordinates that they carry or, without, by their names."""
    spec = importlib.util.find_spec("pyspark")
    folder = Path(spec.submodule_search_locations[0], "jars")
    for path in sorted(folder.glob("*.jar")):
        name, version = re.fullmatch(r"(.+?)-(\d.*|v\d.*)\.jar", path.name).groups()
        group = _group_of(path, name)
        where = f"maven/{group}/{name}" if group else f"generic/{name}"
        yield {
            "bom-ref": f"pyspark/{path.name}",
            "type": "library",
            **({"group": group} if group else {}),
            "name": name,
            "version": version,
            "purl": f"pkg:{where}@{version}",
            "hashes": [
                {"alg": "SHA-256", "content": hashlib.sha256(path.read_bytes()).hexdigest()}
            ],
        }


def _group_of(path: Path, artifact: str) -> str:
    with zipfile.ZipFile(path) as archive:
        for entry in archive.namelist():
            found = re.fullmatch(rf"META-INF/maven/([^/]+)/{re.escape(artifact)}/pom.xml", entry)
            if found:
                return found.group(1)
    return ""


def main() -> int:
    tool, target = sys.argv[1], Path(sys.argv[2])
    target.parent.mkdir(parents=True, exist_ok=True)
    document = bill(tool)
    target.write_text(json.dumps(document, indent=2) + "\n")
    print(f"{len(document['components'])} components: {target}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
