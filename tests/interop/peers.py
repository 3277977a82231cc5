# SPDX-License-Identifier: Apache-2.0
"""Reading our tables with other Paimon implementations, in their own virtualenv.

`.venv-peers` of the repository, or the interpreter named by LAKEWARD_PEERS_PYTHON, must hold the
versions of `requirements-peers.txt`. Without it tests are skipped; under CI=true they fail.
"""

import atexit
import functools
import os
import pathlib
import tempfile

import pyarrow as pa
import pytest

from tests.interop import artifacts
from tests.interop.child import Child, ChildError

__all__ = [
    "PEERS",
    "ROOT",
    "PeerFailedError",
    "missing",
    "peer_rows",
    "peers_python",
    "required_jars",
]

PEERS = ("pypaimon", "pypaimon-rust")
ROOT = pathlib.Path(__file__).parents[2]
SCRIPT = pathlib.Path(__file__).with_name("peer_read.py")
ANSWER_S = 180.0


class PeerFailedError(AssertionError):
    """A peer could not read a table; the text is its stack trace."""


def missing(text: str) -> None:
    """Leave a test out for want of a peer; under CI=true fail."""
    if os.environ.get("CI") == "true":
        pytest.fail(text)
    pytest.skip(text)


def required_jars(*wanted: tuple[str, str, str]) -> list[pathlib.Path]:
    """The jars of artifacts that were fetched before; without one the test is left out."""
    try:
        return [artifacts.jar(artifact, fetch=False) for artifact in wanted]
    except artifacts.ArtifactUnavailableError as error:
        missing(str(error))
        raise


def peers_python() -> str:
    """The interpreter with the peers."""
    python = os.environ.get("LAKEWARD_PEERS_PYTHON", str(ROOT / ".venv-peers" / "bin" / "python"))
    if not pathlib.Path(python).exists():
        missing(f"no peers: run `make peers` ({python} is missing)")
    return python


@functools.cache
def _reader(python: str) -> Child:
    child = Child([python, str(SCRIPT)])
    atexit.register(child.close)
    return child


def peer_rows(peer: str, warehouse: pathlib.Path, name: str) -> pa.Table:
    """What a peer reads from `database.table`.

    Raises:
        PeerFailedError: it could not.
    """
    return _rows(peer, str(warehouse), name)


def _rows(peer: str, warehouse: str, name: str) -> pa.Table:
    python = peers_python()
    with tempfile.TemporaryDirectory() as directory:
        output = str(pathlib.Path(directory) / "found.arrow")
        order = {"peer": peer, "warehouse": warehouse, "name": name, "output": output}
        try:
            _reader(python).ask(order, ANSWER_S)
        except ChildError as error:
            raise PeerFailedError(f"{peer}: {error}") from error
        except OSError:
            _reader.cache_clear()
            raise
        with pa.OSFile(output) as file:
            return pa.ipc.open_file(file).read_all()
