# SPDX-License-Identifier: Apache-2.0
"""A real HDFS: a NameNode and a DataNode with WebHDFS, in one process.

with hdfs_cluster() as cluster:
    file_io, root = resolve_file_io(f"{cluster.url}/warehouse", cluster.options)
"""

import contextlib
import dataclasses
import getpass
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.e2e.hadoop_artifacts import hadoop_jars
from tests.e2e.server_process import ServerProcess
from tests.free_ports import free_ports

__all__ = ["HdfsCluster", "hdfs_cluster"]

JVM = (
    "-Xmx700m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)


@dataclasses.dataclass(frozen=True)
class HdfsCluster:
    """A running cluster.

    Attributes:
        port: of the NameNode's RPC, on 127.0.0.1.
        http_port: of its WebHDFS.
        user: the superuser.
    """

    port: int
    http_port: int
    user: str

    @property
    def url(self) -> str:
        """Root of the file system."""
        return f"hdfs://127.0.0.1:{self.port}"

    @property
    def address(self) -> str:
        """Where WebHDFS answers."""
        return f"http://127.0.0.1:{self.http_port}"

    @property
    def options(self) -> dict[str, str]:
        """Options of a warehouse."""
        return {"hdfs.webhdfs.address": self.address, "hdfs.webhdfs.user": self.user}


@contextlib.contextmanager
def hdfs_cluster() -> Iterator[HdfsCluster]:
    """An empty file system, removed with the context.

    Raises:
        PartUnavailableError: none can be had here.
    """
    jars = hadoop_jars()
    folder = Path(tempfile.mkdtemp(prefix="lakeward-hdfs-"))
    cluster = HdfsCluster(*free_ports(2), getpass.getuser())
    ready = folder / "details.json"
    settings = {
        "dfs.namenode.delegation.token.always-use": "true",
        "dfs.namenode.acls.enabled": "true",
        "dfs.replication": "1",
        "hadoop.http.staticuser.user": "dr.who",
    }
    process = ServerProcess(
        [
            *("java", *JVM, f"-Dtest.build.data={folder}/data", "-cp", f"{jars}/*"),
            "org.apache.hadoop.test.MiniDFSClusterManager",
            *(word for key, value in settings.items() for word in ("-D", f"{key}={value}")),
            *("-format", "-datanodes", "1", "-nnport", str(cluster.port)),
            *("-httpport", str(cluster.http_port), "-writeDetails", str(ready)),
        ],
        folder / "server.log",
    )
    try:
        process.start(ready.exists)
        yield cluster
    finally:
        process.kill()
        shutil.rmtree(folder, ignore_errors=True)
