# SPDX-License-Identifier: Apache-2.0
"""Programs for tests from Maven's central repository, fetched once into `.cache`.

With Maven where it is installed, else with the Ivy among pyspark's jars. A folder in the cache is
whole or absent: it gets its name when everything is in it.

    folder = fetched("connect-4.1.0", [Artifact("org.apache.kafka", "connect-runtime", "4.1.0")])
"""

import contextlib
import dataclasses
import shutil
import subprocess
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyspark

from tests.e2e.availability import PartUnavailableError

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "parts"
TIMEOUT_S = 900
_GET = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"


@dataclasses.dataclass(frozen=True)
class Artifact:
    """Coordinates of a file; with dependencies only when it is a plain jar and `whole`."""

    group: str
    name: str
    version: str
    classifier: str = ""
    extension: str = "jar"
    whole: bool = False

    @property
    def pom(self) -> str:
        """As a dependency of a pom."""
        classifier = f"<classifier>{self.classifier}</classifier>" if self.classifier else ""
        exclusion = "<exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>"
        exclusions = "" if self.whole else f"<exclusions>{exclusion}</exclusions>"
        return (
            f"<dependency><groupId>{self.group}</groupId><artifactId>{self.name}</artifactId>"
            f"<version>{self.version}</version><type>{self.extension}</type>"
            f"{classifier}{exclusions}</dependency>"
        )

    @property
    def ivy(self) -> str:
        """As a dependency of an Ivy file."""
        classifier = f' m:classifier="{self.classifier}"' if self.classifier else ""
        artifact = (
            f'<artifact name="{self.name}" type="{self.extension}" ext="{self.extension}"'
            f"{classifier}/>"
        )
        return (
            f'<dependency org="{self.group}" name="{self.name}" rev="{self.version}"'
            f' conf="default-&gt;default" transitive="{str(self.whole).lower()}">'
            f"{'' if self.whole else artifact}</dependency>"
        )


def fetched(
    name: str,
    artifacts: Sequence[Artifact],
    arrange: Callable[[Path, Path], None] | None = None,
) -> Path:
    """A folder of the cache with the artifacts.

    Args:
        name: of the folder; has the versions in it.
        artifacts: what is in it.
        arrange: (folder of the fetched files, empty folder to fill); None = the files themselves.

    Raises:
        PartUnavailableError: they are neither cached nor can they be fetched.
    """
    folder = CACHE / name
    if folder.is_dir():
        return folder
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
        files, made = Path(scratch, "files"), Path(scratch, "made")
        files.mkdir()
        made.mkdir()
        made.chmod(0o755)
        fetch = _with_maven if shutil.which("mvn") else _with_ivy
        fetch(Path(scratch), artifacts, files)
        if not any(files.iterdir()):
            raise PartUnavailableError(f"{name}: nothing was resolved")
        if arrange is None:
            made = files
        else:
            arrange(files, made)
        with contextlib.suppress(OSError):  # another process was faster
            made.rename(folder)
    return folder


def unpack(files: Path, pattern: str, target: Path) -> None:
    """Unpack the one archive that matches into a folder."""
    [archive] = files.glob(pattern)
    if archive.suffix in (".jar", ".zip"):
        with zipfile.ZipFile(archive) as opened:
            opened.extractall(target)
    else:
        with tarfile.open(archive) as opened:
            opened.extractall(target, filter="tar")


def _with_maven(scratch: Path, artifacts: Sequence[Artifact], files: Path) -> None:
    wanted = "".join(artifact.pom for artifact in artifacts)
    (scratch / "pom.xml").write_text(
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>lakeward</groupId><artifactId>test-parts</artifactId><version>1</version>"
        f"<dependencies>{wanted}</dependencies></project>"
    )
    run_tool(
        ["mvn", "-q", "-B", _GET, f"-DoutputDirectory={files}", "-DincludeScope=runtime"], scratch
    )


def _with_ivy(scratch: Path, artifacts: Sequence[Artifact], files: Path) -> None:
    ivy = next(Path(pyspark.__file__).parent.glob("jars/ivy-*.jar"), None)
    if ivy is None:
        raise PartUnavailableError("neither Maven nor Ivy is installed")
    wanted = "".join(artifact.ivy for artifact in artifacts)
    (scratch / "ivy.xml").write_text(
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        '<info organisation="lakeward" module="test-parts"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{wanted}</dependencies></ivy-module>"
    )
    pattern = f"{files}/[artifact]-[revision](-[classifier]).[ext]"
    options = ["-cache", str(scratch / "ivy"), "-confs", "default", "-retrieve", pattern]
    run_tool(["java", "-jar", str(ivy), "-ivy", str(scratch / "ivy.xml"), *options], scratch)


def run_tool(command: Sequence[str], cwd: Path, **settings: Any) -> str:
    """Standard output of a tool that must succeed."""
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            check=True,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            **settings,
        )
    except (OSError, subprocess.SubprocessError) as error:
        output = f"{getattr(error, 'stdout', '')}\n{getattr(error, 'stderr', '')}"
        raise PartUnavailableError(f"{command[0]} failed: {error}\n{output[-2000:]}") from error
    return str(done.stdout)
