# SPDX-License-Identifier: Apache-2.0
"""The Spark session, with the settings found in SPARK.md's experiments."""

import contextlib
import functools
import hashlib
import logging
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyspark
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext, accumulators
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from ingest.compiled import loading
from ingest.daemon.jvm_log import JvmLog, java_words, log_options
from ingest.kubernetes.pods import (
    available_cores,
    heap_of,
    is_kubernetes,
    memory_limit,
    pod_properties,
)
from storage.errors import RetryableError

ARCHIVE = "classes.jsa"
PREFIX = "spark-"
_INSTALLED = Path(pyspark.__file__).parent
_CDS_WORDS = ("-Xshare", "SharedArchiveFile", "ArchiveClassesAtExit")


@functools.cache
def prepared_home() -> Path:
    """Path of the Spark home with a class archive, whether or not it exists.

    The archive (class data sharing of the JVM) is created once, at set-up, by
    `ingest.daemon.class_archive`. With it Spark starts with half of the CPU time. The JVM accepts
    it only with the Java, class path, jars and collector of its creation, and runs without it
    otherwise. So the home has a fixed path, which is part of the class path, beside the cache of
    compiled functions, which is equally trusted as code.

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
    """Create a home without archive below a directory; None if it or Spark's jars do not exist."""
    if not (place and Path(place).is_dir() and (_INSTALLED / "jars").is_dir()):
        return None
    return link_home(Path(tempfile.mkdtemp(prefix="spark-home-", dir=place)))


def link_home(home: Path) -> Path:
    """Create the links of a home, whose directory may exist."""
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
        options: of the JVM; its own archive options take precedence.
    """
    archive = home / ARCHIVE
    has_archive_option = any(
        word in option for option in java_words(options) for word in _CDS_WORDS
    )
    if has_archive_option or not archive.exists():
        return options
    # a rejected archive is not worth a log line
    return (
        f"{options} -XX:SharedArchiveFile={shlex.quote(str(archive))} -Xshare:auto -Xlog:cds*=off"
    )


_LOG = logging.getLogger(__name__)

_PACKAGES_ROOT = Path(__file__).resolve().parents[2]
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_EXECUTOR_JAVA_OPTIONS = "spark.executor.extraJavaOptions"
_CHECKPOINT_FILES = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
_DRIVER_PYTHON = "PYSPARK_DRIVER_PYTHON"
_NO_COMMAND = "no-data-sources-by-name"
"""Before Spark creates a registered data source, it runs this program, twice, to search installed
packages for others (0.2 CPU s); not if the program does not exist. It has no other use."""

_STACK = "-Xss16m"
"""stop() during a running action overflows the default stack (SPARK.md §9)."""

_SMALL_HEAP = "-XX:InitialHeapSize=192m -XX:MaxNewSize=64m"
"""Rows bypass the heap (docs/adr/ingest/0039), and other objects are short-lived. A heap with
an initial size by the machine's memory would be touched completely nevertheless."""

JAVA_DEFAULTS = f"{_STACK} -XX:+UseParallelGC -XX:TieredStopAtLevel=1 {_SMALL_HEAP}"
"""Options of the driver's JVM, if the settings have none."""

_OUTPUT_TIMEOUT_S = 5.0
"""How long to wait for the output of a JVM that did not start [s]."""


class SparkStartError(RetryableError):
    """Spark did not start. Operator action: see the log; in a cluster, the executors' pods."""


def default_master() -> str:
    """`local[N,4]`: plain local mode never retries a task (SPARK.md §3)."""
    return f"local[{available_cores()},4]"


def build_session(
    name: str, *, master: str, conf: Mapping[str, str], parallelism: int
) -> SparkSession:
    """Start the JVM and the session.

    Args:
        name: application name.
        master: Spark master URL.
        conf: the user's settings; they take precedence.
        parallelism: shuffle partitions; about the number of cores, never 200 (SPARK.md §8).

    Raises:
        SparkStartError: no session; a new process may succeed.
    """
    # executors use this path too: the same image, or the same machine
    os.environ["PYSPARK_PYTHON"] = conf.get("spark.pyspark.python", sys.executable)
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    _export_python_path()
    settings = spark_properties(master, conf, parallelism)
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        _start_jvm(settings, is_local=master.startswith("local"))
        return builder.getOrCreate()
    except (Py4JError, PySparkException) as error:
        raise SparkStartError(
            "Spark did not start",
            detail=_cause_of(error),
            hint="the log above says what the JVM or the executors' pods lacked",
        ) from error


def _start_jvm(properties: Mapping[str, str], *, is_local: bool) -> None:
    """Start the driver's JVM, with its log in ours; a running one is used unchanged.

    Raises:
        PySparkException: it did not start.
    """
    if SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
        return
    jvm_properties = dict(properties)
    log = JvmLog()
    try:
        # on a cluster the directory is not ours, and Spark may send its home to executors
        with _spark_home(jvm_properties) if is_local else contextlib.nullcontext():
            conf = SparkConf().setAll(list(jvm_properties.items()))
            # a signal to the daemon's group, as `timeout` sends it, is the daemon's alone
            process = {"stdout": log.fileno, "stderr": log.fileno, "process_group": 0}
            gateway = launch_gateway(conf, process)
    except BaseException:
        log.handed_over()
        log.join(_OUTPUT_TIMEOUT_S)
        raise
    log.handed_over()
    for server in (accumulators.AccumulatorTCPServer, accumulators.AccumulatorUnixServer):
        server.handle_error = _lost_connection
    SparkContext._ensure_initialized(gateway=gateway)


@contextlib.contextmanager
def _spark_home(properties: dict[str, str]) -> Iterator[None]:
    """Give the JVM a SPARK_HOME of ours, unless the user has set one.

    It has links to `bin` and `jars` of the installed pyspark, and no archives of Python modules.
    Spark puts those first on the path of each Python process that it starts; each of them compiles
    the modules again (0.5 CPU s), although pyspark is installed. Without them Spark does not start
    two processes to find data sources by name, either.

    Args:
        properties: of the JVM; options for the home's archive of classes are added.
    """
    if "SPARK_HOME" in os.environ:
        yield
        return
    options = properties.get(JAVA_OPTIONS, "")
    properties[JAVA_OPTIONS] = archive_options(prepared_home(), options)
    if properties[JAVA_OPTIONS] != options:
        home: Path | None = prepared_home()
    else:
        local_directories = properties.get("spark.local.dir", "")
        home = temporary_home(local_directories.partition(",")[0])
    if home is None:
        yield
        return
    os.environ["SPARK_HOME"] = str(home)
    python = os.environ.get(_DRIVER_PYTHON)
    os.environ[_DRIVER_PYTHON] = _NO_COMMAND
    try:
        yield
    finally:
        del os.environ["SPARK_HOME"]
        if python is None:
            del os.environ[_DRIVER_PYTHON]
        else:
            os.environ[_DRIVER_PYTHON] = python


def _lost_connection(server: object, request: object, client_address: object) -> None:
    """Log instead of a traceback on standard error; the daemon reports that the JVM ended."""
    _LOG.debug("the JVM's connection for accumulators broke", exc_info=True)


def spark_properties(
    master: str,
    conf: Mapping[str, str],
    parallelism: int,
    environ: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """All of Spark's properties; `conf`, the user's, takes precedence."""
    settings = {
        JAVA_OPTIONS: JAVA_DEFAULTS,
        "spark.python.daemon.module": "ingest.daemon.worker_daemon",
        # chunks pass between processes through the page cache: compression has no benefit
        "spark.shuffle.compress": "false",
        "spark.shuffle.spill.compress": "false",
        # a task repeated after a lost executor may split its chunks differently and reports other
        # times; Spark would fail the batch for that (adr/0018)
        "spark.sql.shuffle.orderIndependentChecksum.enabled": "false",
        "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch": "false",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(parallelism),
        "spark.sql.adaptive.enabled": "false",
        # the plan handles a few rows: compiling it takes longer than running it
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.execution.arrow.maxBytesPerBatch": "16m",
        "spark.sql.streaming.minBatchesToRetain": "20",
        # Spark's default runs `readlink` sixteen times a batch, each in a separate process
        "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINT_FILES,
        "spark.sql.session.timeZone": "UTC",
        # the source's options contain client properties, including secrets
        "spark.sql.redaction.options.regex": "(?i)url|settings|pipeline",
        "spark.scheduler.mode": "FAIR",
        "spark.driver.bindAddress": "127.0.0.1" if master.startswith("local") else "0.0.0.0",
    }
    if master.startswith("local"):
        settings["spark.driver.host"] = "127.0.0.1"
    if is_kubernetes(master):
        settings.update(pod_properties(os.environ if environ is None else environ, conf))
    if "spark.driver.memory" not in conf:
        settings["spark.driver.memory"] = _driver_memory()
    settings.update(conf)
    if "-Xss" not in settings[JAVA_OPTIONS]:
        settings[JAVA_OPTIONS] = f"{_STACK} {settings[JAVA_OPTIONS]}"
    environ = os.environ if environ is None else environ
    settings[JAVA_OPTIONS] = log_options(settings[JAVA_OPTIONS], environ, driver=True)
    executor = settings.get(_EXECUTOR_JAVA_OPTIONS, "")
    settings[_EXECUTOR_JAVA_OPTIONS] = log_options(executor, environ, driver=False)
    return settings


def _cause_of(error: Py4JError | PySparkException) -> str:
    """The Java exception's line, without its stack."""
    lines = [line for line in str(error).splitlines() if line.startswith(":")]
    return lines[0].removeprefix(":").strip() if lines else str(error)


def _driver_memory() -> str:
    limit = memory_limit()
    if limit is None:
        return "2g"
    heap = heap_of(limit)
    _LOG.info(
        "heap sized by the container's memory limit",
        extra={"event": "heap", "heap_mib": heap, "limit_mib": limit >> 20},
    )
    return f"{heap}m"


def _export_python_path() -> None:
    """Let workers import these packages, whatever the working directory (SPARK.md §7)."""
    root = str(_PACKAGES_ROOT)
    paths = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    if root not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([root, *paths])
