# SPDX-License-Identifier: Apache-2.0
"""A real Hive Metastore on an embedded Derby, from the jars that pyspark carries.

with hive_metastore(folder) as uri:
    Catalog.open(warehouse, {"metastore": "hive", "uri": uri})
"""

import contextlib
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pyspark

from storage.catalog.hive import HiveLock
from storage.catalog.hive_client import HiveClient
from tests.e2e.availability import PartUnavailableError
from tests.e2e.server_process import ServerProcess
from tests.free_ports import free_port

__all__ = ["hive_metastore"]

SETTINGS = {
    "javax.jdo.option.ConnectionDriverName": "org.apache.derby.jdbc.EmbeddedDriver",
    "datanucleus.schema.autoCreateAll": "true",
    "datanucleus.connectionPoolingType": "None",  # pyspark has no jar of a pool
    "hive.metastore.schema.verification": "false",
    "hive.async.log.enabled": "false",
}


@contextlib.contextmanager
def hive_metastore(folder: Path) -> Iterator[str]:
    """A metastore for as long as the context lasts.

    It is started twice: only in its test mode it makes the tables of locks, and in that mode it
    refuses locks as Paimon's Java client takes them.

    Args:
        folder: for its database, its configuration and its log.

    Raises:
        PartUnavailableError: it cannot be started here.
    """
    with _running(folder, {"hive.in.test": "true"}) as uri:
        lock = HiveLock(HiveClient(uri), "default.none", {})
        with lock.held():
            pass
    with _running(folder, {}) as uri:
        yield uri


@contextlib.contextmanager
def _running(folder: Path, more: dict[str, str]) -> Iterator[str]:
    java = shutil.which("java")
    if java is None:
        raise PartUnavailableError("java is not installed")
    port = free_port()
    settings = {
        **SETTINGS,
        **more,
        "javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder}/names;create=true",
        "hive.metastore.warehouse.dir": f"file:{folder}/hive",
    }
    properties = "".join(
        f"<property><name>{name}</name><value>{value}</value></property>"
        for name, value in settings.items()
    )
    (folder / "hive-site.xml").write_text(f"<configuration>{properties}</configuration>")
    jars = Path(pyspark.__file__).parent / "jars"
    process = ServerProcess(
        [
            java,
            "-Xmx512m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-cp",
            f"{folder}:{jars}/*",
            "org.apache.hadoop.hive.metastore.HiveMetaStore",
            "-p",
            str(port),
        ],
        folder / "metastore.log",
    )

    def answers() -> bool:
        try:
            with socket.create_connection(("127.0.0.1", port), 1):
                return True
        except OSError:
            return False

    try:
        process.start(answers)
        yield f"thrift://127.0.0.1:{port}"
    finally:
        process.stop()
