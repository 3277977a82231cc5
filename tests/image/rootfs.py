# SPDX-License-Identifier: Apache-2.0
"""The image's file system and the pod's constraints, without an engine: a sandbox of bubblewrap.

User, environment and entry point are read from the Dockerfile. The system is this machine's `/usr`;
`/opt/app` is a virtual environment with the wheel in it, which takes the locked packages from the
environment that the tests run in. As in a pod: not root, no capabilities, a read-only root,
`/tmp` of its own, the state volume; and no network at all.
"""

import json
import os
import re
import shutil
import site
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.image.tools import debian
from tests.image.wheel import build_wheel

ROOT = Path(__file__).resolve().parents[2]
STATE = "/var/lib/lakeward"
_CONFIGURED = ("alternatives", "ssl", "ld.so.cache", "nsswitch.conf", "localtime", "mime.types")


class Dockerfile:
    """What the last stage says."""

    def __init__(self) -> None:
        text = (ROOT / "deploy" / "Dockerfile").read_text().replace("\\\n", " ")
        last = text.rpartition("\nFROM ")[2]
        set_lines = " ".join(re.findall(r"^ENV (.*)", last, re.M))
        self.environ = dict(re.findall(r"(\w+)=(\S+)", set_lines))
        self.environ["PATH"] = self.environ["PATH"].replace(
            "$PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        )
        self.entrypoint = json.loads(re.search(r"^ENTRYPOINT (.*)$", last, re.M).group(1))
        self.uid, self.gid = re.search(r"^USER (\d+):(\d+)$", last, re.M).groups()
        self.directory = re.findall(r"^WORKDIR (\S+)$", last, re.M)[-1]


class Image:
    """The file system, made once.

    Args:
        directory: empty.
    """

    def __init__(self, directory: Path) -> None:
        self._bwrap = debian("bwrap", "bubblewrap")
        debian("tini", "tini")
        probe = [self._bwrap, "--unshare-user", "--unshare-pid", "--ro-bind", "/", "/", "true"]
        tried = subprocess.run(probe, capture_output=True, text=True, check=False)
        if tried.returncode != 0:
            pytest.skip(f"bubblewrap may not make namespaces here: {tried.stderr.strip()}")
        self._made = Dockerfile()
        self._directory = directory
        self._app = directory / "app"
        wheel = build_wheel(directory / "wheel")
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", self._app], check=True)
        packages = next(self._app.glob("lib/python*/site-packages"))
        (packages / "locked.pth").write_text("/opt/locked\n")
        (directory / "passwd").write_text(
            "root:x:0:0:root:/root:/bin/bash\n"
            f"lakeward:x:{self._made.uid}:{self._made.gid}::/tmp:/usr/sbin/nologin\n"
        )
        (directory / "group").write_text(f"root:x:0:lakeward\nlakeward:x:{self._made.gid}:\n")
        (directory / "hosts").write_text("127.0.0.1 localhost\n127.0.0.1 shop-lakeward-0\n")
        self._install(wheel)

    def _install(self, wheel: Path) -> None:
        """As the Dockerfile does, where it will be: scripts name their Python by its path."""
        locked = site.getsitepackages()[0]
        command = [*self._system(), "--bind", str(self._app), "/opt/app"]
        command += ["--ro-bind", str(wheel.parent), "/wheel", "--ro-bind", locked, "/opt/locked"]
        command += ["/opt/app/bin/python", "-m", "pip", "install", "--no-deps", "--no-index"]
        command += ["--no-compile", "--quiet", "--ignore-installed", f"/wheel/{wheel.name}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def command(
        self, state: Path, arguments: Sequence[str], *, entrypoint: Sequence[str] | None = None
    ) -> list[str]:
        """A container's command line.

        Args:
            state: mounted at `STATE`.
            arguments: of the entry point.
            entrypoint: another than the image's.
        """
        begin = self._made.entrypoint if entrypoint is None else entrypoint
        command = [*self._system(), "--ro-bind", str(self._app), "/opt/app"]
        command += ["--ro-bind", site.getsitepackages()[0], "/opt/locked"]
        command += ["--bind", str(state), STATE, "--remount-ro", "/", "--unshare-net"]
        command += ["--as-pid-1", "--chdir", self._made.directory]
        return [*command, *begin, *arguments]

    def _system(self) -> list[str]:
        made = self._made
        command = [self._bwrap, "--unshare-user", "--uid", made.uid, "--gid", made.gid]
        command += ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--cap-drop", "ALL"]
        command += ["--hostname", "shop-lakeward-0", "--die-with-parent", "--clearenv"]
        command += ["--ro-bind", "/usr", "/usr", "--proc", "/proc", "--dev", "/dev"]
        command += ["--tmpfs", "/tmp"]
        for name in ("bin", "sbin", "lib", "lib64"):
            command += ["--symlink", f"usr/{name}", f"/{name}"]
        java = [path.name for path in Path("/etc").glob("java-*")]
        for name in (*_CONFIGURED, *java):
            command += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
        for name in ("passwd", "group", "hosts"):
            command += ["--ro-bind", str(self._directory / name), f"/etc/{name}"]
        for path in self._elsewhere():
            command += ["--ro-bind", path, path]
        for name, value in made.environ.items():
            command += ["--setenv", name, value]
        return command

    @staticmethod
    def _elsewhere() -> list[str]:
        """Python and Java where they are not below /usr."""
        java = Path(os.path.realpath(shutil.which("java") or "/usr/bin/java"))
        homes = {str(Path(sys.base_prefix).resolve()), str(java.parents[1])}
        return sorted(home for home in homes if not home.startswith("/usr/"))


class Container:
    """A running one; its log is a file.

    Args:
        image: what it runs.
        state: its volume.
        arguments: of the entry point.
    """

    def __init__(self, image: Image, state: Path, arguments: Sequence[str]) -> None:
        self._log = state.parent / f"{state.name}.log"
        told, tell = os.pipe()
        command = image.command(state, arguments)
        command[1:1] = ["--info-fd", str(tell)]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, pass_fds=(tell,), start_new_session=True
            )
        os.close(tell)
        with os.fdopen(told) as told_file:
            self.first = int(json.load(told_file)["child-pid"])

    def signal(self, number: int) -> None:
        """To the container's first process, as a runtime does."""
        os.kill(self.first, number)

    def wait(self, timeout: float) -> int:
        return self.process.wait(timeout)

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def __enter__(self) -> "Container":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(30)
