# SPDX-License-Identifier: Apache-2.0
"""Iceberg's reference implementation of a REST catalog, over a catalog in SQLite.

with iceberg_rest_server(warehouse) as server:
    options = {"metadata.iceberg.rest.uri": server.uri}
"""

import contextlib
import dataclasses
import shutil
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from tests.e2e.hadoop_artifacts import HADOOP_VERSION
from tests.e2e.maven_artifacts import Artifact, fetched
from tests.e2e.server_process import ServerProcess
from tests.free_ports import free_port

__all__ = ["ICEBERG_VERSION", "IcebergRestServer", "iceberg_rest_server"]

ICEBERG_VERSION = "1.11.0"
_JETTY = "12.0.22"
_WHOLE = f"org.apache.iceberg:iceberg-core:{ICEBERG_VERSION}"
_JARS = f"""
org.apache.iceberg:iceberg-core:{ICEBERG_VERSION}:tests
org.eclipse.jetty.ee10:jetty-ee10-servlet:{_JETTY}
org.eclipse.jetty:jetty-server:{_JETTY}
org.eclipse.jetty:jetty-http:{_JETTY}
org.eclipse.jetty:jetty-io:{_JETTY}
org.eclipse.jetty:jetty-util:{_JETTY}
org.eclipse.jetty:jetty-security:{_JETTY}
org.eclipse.jetty:jetty-session:{_JETTY}
jakarta.servlet:jakarta.servlet-api:6.0.0
org.slf4j:slf4j-simple:2.0.17
org.xerial:sqlite-jdbc:3.50.3.0
org.apache.hadoop:hadoop-client-api:{HADOOP_VERSION}
org.apache.hadoop:hadoop-client-runtime:{HADOOP_VERSION}
commons-logging:commons-logging:1.1.3
"""

_MAIN = """
import java.net.InetSocketAddress;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.CatalogUtil;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.server.Server;

public class Main {
    public static void main(String[] args) throws Exception {
        var catalog = CatalogUtil.buildIcebergCatalog("backend", Map.of(
            "catalog-impl", "org.apache.iceberg.jdbc.JdbcCatalog",
            "uri", "jdbc:sqlite:" + args[1], "jdbc.schema-version", "V1",
            "warehouse", args[2]), new Configuration());
        var context = new ServletContextHandler();
        context.addServlet(new ServletHolder(
            new RESTCatalogServlet(new RESTCatalogAdapter(catalog))), "/*");
        var server = new Server(new InetSocketAddress("127.0.0.1", Integer.parseInt(args[0])));
        server.setHandler(context);
        server.start();
        server.join();
    }
}
"""


@dataclasses.dataclass(frozen=True)
class IcebergRestServer:
    """A running catalog.

    Attributes:
        uri: where it answers.
        process: its process, for failures.
    """

    uri: str
    process: ServerProcess

    def answers(self) -> bool:
        """Whether it answers."""
        with contextlib.suppress(OSError):
            urllib.request.urlopen(f"{self.uri}/v1/config", timeout=5).close()
            return True
        return False


def iceberg_rest_jars() -> Path:
    """Folder of the jars of the server.

    Raises:
        PartUnavailableError: they are neither cached nor can they be fetched.
    """
    artifacts = [Artifact(*_WHOLE.split(":"), whole=True)]
    artifacts += [Artifact(*name.split(":")) for name in _JARS.split()]
    return fetched(f"iceberg-rest-{ICEBERG_VERSION}", artifacts)


@contextlib.contextmanager
def iceberg_rest_server() -> Iterator[IcebergRestServer]:
    """An empty catalog, removed with the context.

    Raises:
        PartUnavailableError: none can be had here.
    """
    jars = iceberg_rest_jars()
    folder = Path(tempfile.mkdtemp(prefix="lakeward-iceberg-rest-"))
    (folder / "Main.java").write_text(_MAIN)
    port = free_port()
    process = ServerProcess(
        [
            *("java", "-Xmx300m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
            *("-cp", f"{jars}/*", str(folder / "Main.java")),
            *(str(port), str(folder / "catalog.db"), str(folder / "warehouse")),
        ],
        folder / "server.log",
    )
    server = IcebergRestServer(f"http://127.0.0.1:{port}", process)
    try:
        process.start(server.answers)
        yield server
    finally:
        process.kill()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    print(iceberg_rest_jars())
