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
from ingest.kubernetes.limits import available_cores, heap_of, memory_limit
from ingest.kubernetes.pods import is_kubernetes, pod_properties
from storage.errors import RetryableError

ARCHIVE = "classes.jsa"
PREFIX = "spark-"
_INSTALLED = Path(pyspark.__file__).parent
_GIVEN = ("-Xshare", "SharedArchiveFile", "ArchiveClassesAtExit")


@functools.cache
def prepared_home() -> Path:
    """Where the home with an archive of classes is, whether or not there is one.

    The archive (class data sharing of the JVM) is made once, at set-up, by
    `ingest.daemon.class_archive`. A JVM with it starts Spark with half of the CPU. The JVM accepts
    it for the very Java, class path, jars and collector that it was made with, and runs without it
    otherwise. So the home has a fixed path, which is part of the class path, beside the cache of
    compiled functions: what is there is run, too.

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
    given = any(word in option for option in java_words(options) for word in _GIVEN)
    if given or not archive.exists():
        return options
    # an archive that does not fit is no matter for the log
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
"""Before Spark makes a data source that was registered, it runs this program, twice, to look for
others among all that is installed (0.2 CPU s); not if there is no such program. It uses it for
nothing else."""

_STACK = "-Xss16m"
"""stop() during a running action overflows the default stack (SPARK.md §9)."""

_YOUNG = "-XX:InitialHeapSize=96m -XX:MaxNewSize=64m"
"""Rows pass the heap by (docs/adr/ingest/0039), and what does pass dies young; a heap that begins
with a share of the machine's memory is touched from one end to the other all the same."""

JAVA_DEFAULTS = f"{_STACK} -XX:+UseParallelGC -XX:TieredStopAtLevel=1 {_YOUNG}"
"""Options of the driver's JVM, if the settings give none."""

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
        conf: the user's settings; they win.
        parallelism: shuffle partitions; about the number of cores, never 200 (SPARK.md §8).

    Raises:
        SparkStartError: no session; a new process may succeed.
    """
    # executors are given this path, too: the same image, or the same machine
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
    """Start the driver's JVM, its log being part of ours; one that runs already is taken as it is.

    Raises:
        PySparkException: it did not start.
    """
    if SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
        return
    given = dict(properties)
    log = JvmLog()
    try:
        # on a cluster the directory is not ours, and Spark may send its home to executors
        with _spark_home(given) if is_local else contextlib.nullcontext():
            conf = SparkConf().setAll(list(given.items()))
            gateway = launch_gateway(conf, {"stdout": log.fileno, "stderr": log.fileno})
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
    Spark puts those before all else on the path of each Python process that it starts; what is in
    an archive is compiled again by each of them (0.5 CPU s), though pyspark is installed. Without
    them it does not start two processes to look for data sources by their names, either.

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
    """All of Spark's properties; `conf`, the user's, wins."""
    settings = {
        JAVA_OPTIONS: JAVA_DEFAULTS,
        "spark.python.daemon.module": "ingest.daemon.worker_daemon",
        # chunks go from one process to the next through the page cache: compressing them only costs
        "spark.shuffle.compress": "false",
        "spark.shuffle.spill.compress": "false",
        # a task that runs again after a lost executor may cut its chunks elsewhere and has other
        # times in its report; Spark would fail the batch for that (adr/0018)
        "spark.sql.shuffle.orderIndependentChecksum.enabled": "false",
        "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch": "false",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(parallelism),
        "spark.sql.adaptive.enabled": "false",
        # the plan handles a few rows: compiling code for it takes longer than it ever will
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.execution.arrow.maxBytesPerBatch": "16m",
        "spark.sql.streaming.minBatchesToRetain": "20",
        # Spark's default runs `readlink` sixteen times a batch, each in a process of its own
        "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINT_FILES,
        "spark.sql.session.timeZone": "UTC",
        # the source's options carry client properties, secrets included
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
    """Let workers import these packages wherever the process was started (SPARK.md §7)."""
    root = str(_PACKAGES_ROOT)
    known = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    if root not in known:
        os.environ["PYTHONPATH"] = os.pathsep.join([root, *known])
