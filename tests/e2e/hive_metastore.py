# SPDX-License-Identifier: Apache-2.0
"""A real Hive metastore, with its database inside the process.

with hive_metastore() as server:
    Catalog.open(warehouse, {"metastore": "hive", "uri": server.uri})
"""

import contextlib
import dataclasses
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.e2e.hadoop_artifacts import hive_jars
from tests.e2e.server_process import ServerProcess
from tests.free_ports import free_port

__all__ = ["HiveMetastore", "hive_metastore"]

JVM = (
    "-Xmx700m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/java.net=ALL-UNNAMED",
    "--add-opens=java.base/java.util=ALL-UNNAMED",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)


MAIN = """
import org.apache.hadoop.hive.metastore.HiveMetaStore;
import org.apache.hadoop.hive.metastore.conf.MetastoreConf;
import org.apache.hadoop.hive.metastore.txn.TxnDbUtil;

public class Main {
    public static void main(String[] args) throws Throwable {
        TxnDbUtil.prepDb(MetastoreConf.newMetastoreConf());
        HiveMetaStore.main(args);
    }
}
"""
"""The tables of locks are made by a script for administrators, or by this call; then the server."""


@dataclasses.dataclass(frozen=True)
class HiveMetastore:
    """A running metastore.

    Attributes:
        port: on 127.0.0.1.
        folder: of its database, warehouse and configuration.
    """

    port: int
    folder: Path

    @property
    def uri(self) -> str:
        """Where it answers."""
        return f"thrift://127.0.0.1:{self.port}"

    def answers(self) -> bool:
        """Whether it takes connections."""
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", self.port), 1).close()
            return True
        return False


@contextlib.contextmanager
def hive_metastore() -> Iterator[HiveMetastore]:
    """A metastore with the database `default`, removed with the context.

    Raises:
        PartUnavailableError: none can be had here.
    """
    jars = hive_jars()
    folder = Path(tempfile.mkdtemp(prefix="lakeward-hive-"))
    metastore = HiveMetastore(free_port(), folder)
    settings = {
        "hive.metastore.warehouse.dir": f"{folder}/warehouse",
        "javax.jdo.option.ConnectionURL": "jdbc:derby:memory:metastore;create=true",
        "javax.jdo.option.ConnectionDriverName": "org.apache.derby.jdbc.EmbeddedDriver",
        "datanucleus.schema.autoCreateAll": "true",
        "hive.metastore.schema.verification": "false",
        "hive.metastore.expression.proxy": (
            "org.apache.hadoop.hive.metastore.DefaultPartitionExpressionProxy"
        ),
        "metastore.task.threads.always": (
            "org.apache.hadoop.hive.metastore.events.EventCleanerTask"
        ),
    }
    rows = "".join(
        f"<property><name>{key}</name><value>{value}</value></property>"
        for key, value in settings.items()
    )
    for name in ("metastore-site.xml", "hive-site.xml"):
        (folder / name).write_text(f"<configuration>{rows}</configuration>")
    (folder / "Main.java").write_text(MAIN)
    process = ServerProcess(
        [
            *("java", *JVM, f"-Dderby.stream.error.file={folder}/derby.log"),
            *("-cp", f"{folder}:{jars}/*"),
            *(str(folder / "Main.java"), "-p", str(metastore.port)),
        ],
        folder / "server.log",
    )
    try:
        process.start(metastore.answers)
        yield metastore
    finally:
        process.kill()
        shutil.rmtree(folder, ignore_errors=True)
