# SPDX-License-Identifier: Apache-2.0
"""Carries out the Dockerfile without an engine, in a Debian root made by debootstrap.

    python -m tests.image.build_root DIRECTORY

Needs root, `debootstrap` and `bubblewrap`, a few minutes, 3 GB and the network. The base is Debian
with its own Python 3.11 in place of the official image; what comes after it is done as written. The
result is `DIRECTORY/final`; how to start something in it is said at the end.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = "python3,python3-venv,python3-pip,ca-certificates"
MIRROR = "http://deb.debian.org/debian"
TRUST = "/opt/trusted.pem"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Stage:
    """A root that instructions change.

    Args:
        root: its directory.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.environ = {"PATH": PATH}
        self.directory = "/"

    def inside(self, path: str) -> Path:
        return self.root / os.path.join(self.directory, path).lstrip("/")

    def copy(self, names: list[str], source: Path) -> None:
        *given, target = names
        for name in given:
            path, to = source / name.lstrip("/"), self.inside(target)
            if path.is_dir():
                compiled = shutil.ignore_patterns("__pycache__") if source == ROOT else None
                shutil.copytree(path, to, symlinks=True, dirs_exist_ok=True, ignore=compiled)
            else:
                shutil.copy(path, to / path.name if target.endswith("/") else to)

    def run(self, command: str) -> None:
        """As root, in this root, with the machine's network and package sources."""
        sandbox = ["bwrap", "--bind", str(self.root), "/", "--proc", "/proc", "--dev", "/dev"]
        sandbox += ["--perms", "1777", "--tmpfs", "/tmp", "--chdir", self.directory, "--clearenv"]
        sandbox += ["--ro-bind", "/etc/resolv.conf", "/etc/resolv.conf"]
        trusted = os.environ.get("SSL_CERT_FILE", "/etc/ssl/certs/ca-certificates.crt")
        sandbox += ["--ro-bind", trusted, TRUST]
        told = {k: v for k, v in os.environ.items() if k.lower().endswith(("_proxy", "index_url"))}
        told |= {"SSL_CERT_FILE": TRUST, "PIP_CERT": TRUST, **self.environ}
        for name, value in told.items():
            sandbox += ["--setenv", name, value]
        subprocess.run([*sandbox, "/bin/sh", "-c", command], check=True)


def base(directory: Path) -> Path:
    """Debian with what the official Python image has: `python` and `pip`."""
    root = directory / "base"
    if root.exists():
        return root
    made = ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm", str(root)]
    subprocess.run([*made, MIRROR], check=True)
    for name in ("python", "pip"):
        (root / "usr" / "local" / "bin" / name).symlink_to(f"/usr/bin/{name}3")
    (root / "usr/lib/python3.11/EXTERNALLY-MANAGED").unlink()
    (root / TRUST.lstrip("/")).touch()
    return root


def build(directory: Path) -> Path:
    """All stages; the last one's root."""
    start = base(directory)
    text = (ROOT / "deploy" / "Dockerfile").read_text()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    stages: dict[str, Stage] = {}
    stage = Stage(start)
    for line in filter(None, "\n".join(lines).replace("\\\n", " ").splitlines()):
        word, _, rest = line.strip().partition(" ")
        print(f"{word} {' '.join(rest.split())[:100]}", flush=True)
        if word == "FROM":
            named = re.search(r" AS (\w+)", rest)
            name = named.group(1) if named else "final"
            shutil.rmtree(directory / name, ignore_errors=True)
            subprocess.run(["cp", "-a", str(start), str(directory / name)], check=True)
            stage = stages[name] = Stage(directory / name)
        elif word == "ENV":
            for pair in shlex.split(rest):
                key, _, value = pair.partition("=")
                stage.environ[key] = value.replace("$PATH", PATH)
        elif word == "WORKDIR":
            stage.directory = rest
            stage.inside("").mkdir(parents=True, exist_ok=True)
        elif word == "COPY":
            names = rest.split()
            other = names.pop(0).removeprefix("--from=") if "--from=" in names[0] else ""
            stage.copy(names, stages[other].root if other else ROOT)
        elif word == "RUN":
            stage.run(rest)
    return stage.root


def main() -> int:
    directory = Path(sys.argv[1]).absolute()
    directory.mkdir(parents=True, exist_ok=True)
    root = build(directory)
    print(
        f"\nbuilt {root}; look at it as a pod does:\n  bwrap --unshare-user --uid 10001 --gid 10001"
        f" --unshare-pid --unshare-net --cap-drop ALL --as-pid-1 --clearenv --ro-bind {root} /"
        " --proc /proc --dev /dev --tmpfs /tmp --setenv PATH /opt/app/bin:/usr/bin:/bin"
        " --setenv HOME /tmp /usr/bin/tini -- lakeward-entrypoint version"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
