# SPDX-License-Identifier: Apache-2.0
"""The SPARK_HOME that the driver's JVM gets: Spark's scripts and jars, and an archive of classes.

It has links to `bin` and `jars` of the installed pyspark, and no archives of Python modules. Spark
puts those before all else on the path of each Python process that it starts; what is in an archive
is compiled again by each of them (0.5 CPU s), though pyspark is installed. Without them it does not
start two processes to look for data sources by their names, either.

The archive of classes (class data sharing of the JVM) is made once, at set-up, by
`ingest.daemon.class_archive`. A JVM with it starts Spark with half of the CPU. The JVM accepts it
for the very Java, class path, jars and collector that it was made with, and runs without it
otherwise. So the home with an archive has a fixed path, which is part of the class path, beside the
cache of compiled functions: what is there is run, too.
"""

import functools
import hashlib
import os
import shlex
import shutil
import tempfile
from pathlib import Path

import pyspark

from ingest.compiled import loading

__all__ = ["ARCHIVE", "PREFIX", "archive_options", "link_home", "prepared_home", "temporary_home"]

ARCHIVE = "classes.jsa"
PREFIX = "spark-"
_INSTALLED = Path(pyspark.__file__).parent
_GIVEN = ("-Xshare", "SharedArchiveFile", "ArchiveClassesAtExit")


@functools.cache
def prepared_home() -> Path:
    """Where the home with an archive is, whether or not there is one.

    Its name is a digest of Java's path and of the jars. Java itself checks more.
    """
    java = Path(os.environ["JAVA_HOME"], "bin/java") if "JAVA_HOME" in os.environ else None
    program = str(java or shutil.which("java") or "")
    facts = [pyspark.__version__, str(_INSTALLED), os.path.realpath(program)]
    for jar in sorted((_INSTALLED / "jars").glob("*.jar")):
        status = jar.stat()
        facts.append(f"{jar.name} {status.st_size} {int(status.st_mtime)}")
    digest = hashlib.sha256("\0".join(facts).encode()).hexdigest()[:16]
    return loading.folder().absolute() / f"{PREFIX}{digest}"


def temporary_home(place: str) -> Path | None:
    """Make a home without an archive below a directory; None where it or Spark's jars are not."""
    if not (place and Path(place).is_dir() and (_INSTALLED / "jars").is_dir()):
        return None
    return link_home(Path(tempfile.mkdtemp(prefix="spark-home-", dir=place)))


def link_home(home: Path) -> Path:
    """Make the links of a home, whose directory may exist."""
    home.mkdir(parents=True, exist_ok=True)
    for name in ("bin", "jars"):
        link = home / name
        if not link.is_symlink():
            link.symlink_to(_INSTALLED / name)
    return home


def archive_options(home: Path, options: str) -> str:
    """Java options with those for the archive of a home, if it has one.

    Args:
        home: of `prepared_home`.
        options: of the JVM; what they say about archives stays.
    """
    archive = home / ARCHIVE
    given = any(word in option for option in shlex.split(options) for word in _GIVEN)
    if given or not archive.exists():
        return options
    # an archive that does not fit is no matter for the log
    return (
        f"{options} -XX:SharedArchiveFile={shlex.quote(str(archive))} -Xshare:auto -Xlog:cds*=off"
    )
