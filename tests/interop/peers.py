# SPDX-License-Identifier: Apache-2.0
"""Reading our tables with other Paimon implementations, in their own virtualenv.

`.venv-peers` of the repository, or the interpreter named by LAKEWARD_PEERS_PYTHON, must hold the
versions of `requirements-peers.txt`. Without it tests are skipped; under CI=true they fail.
"""

import os
import pathlib
import subprocess
import tempfile

import pyarrow as pa
import pytest

__all__ = ["PEERS", "peer_rows", "peers_python"]

PEERS = ("pypaimon", "pypaimon-rust")
ROOT = pathlib.Path(__file__).parents[2]
SCRIPT = pathlib.Path(__file__).with_name("peer_read.py")


def peers_python() -> str:
    """The interpreter with the peers."""
    python = os.environ.get("LAKEWARD_PEERS_PYTHON", str(ROOT / ".venv-peers" / "bin" / "python"))
    if not pathlib.Path(python).exists():
        text = f"no peers: run `make peers` ({python} is missing)"
        if os.environ.get("CI") == "true":
            pytest.fail(text)
        pytest.skip(text)
    return python


def peer_rows(peer: str, warehouse: pathlib.Path, name: str) -> pa.Table:
    """What a peer reads from `database.table`."""
    with tempfile.TemporaryDirectory() as directory:
        output = pathlib.Path(directory) / "found.arrow"
        done = subprocess.run(
            [peers_python(), str(SCRIPT), peer, str(warehouse), name, str(output)],
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
            env={**os.environ, "TZ": "UTC", "PYTHONPATH": ""},
        )
        assert done.returncode == 0, done.stderr[-2000:]
        with pa.OSFile(str(output)) as file:
            return pa.ipc.open_file(file).read_all()
