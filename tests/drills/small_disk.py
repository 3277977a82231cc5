# SPDX-License-Identifier: Apache-2.0
"""A disk of a few MiB that can be filled and emptied: a tmpfs that only the daemon sees.

It is mounted in a mount namespace of its own, which a sleeping process keeps; programs enter it by
`inside`, this process looks in by `outside`. No privileges are needed where unprivileged user
namespaces are allowed.
"""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.e2e.availability import PartUnavailableError

PAGE = 4096
"""A tmpfs gives out whole pages: so many bytes left let one more file begin."""

_FILLER = "filler"


class SmallDisk:
    """See the module.

    Args:
        place: directory where programs inside find it.
        holder: process that keeps the namespace.
        user: whether it has a user namespace, too.
    """

    def __init__(self, place: Path, holder: "subprocess.Popen[bytes]", *, user: bool) -> None:
        self.place = place
        spaces = ["--user", "--preserve-credentials"] if user else []
        self.inside = ["nsenter", "--target", str(holder.pid), "--mount", *spaces, "--"]
        self.outside = Path(f"/proc/{holder.pid}/root{place}")

    def fill(self, *, leave: int = 0) -> None:
        """Take all room but `leave` bytes, rounded down to pages."""
        self.empty()
        with (self.outside / _FILLER).open("wb", buffering=0) as filler:
            with contextlib.suppress(OSError):
                while filler.write(bytes(PAGE)) == PAGE:
                    pass
            size = filler.tell() // PAGE * PAGE
            filler.truncate(max(0, size - leave // PAGE * PAGE))

    def empty(self) -> None:
        """Give the room back."""
        (self.outside / _FILLER).unlink(missing_ok=True)

    @property
    def free(self) -> int:
        """Bytes left."""
        found = os.statvfs(self.outside)
        return found.f_bavail * found.f_frsize


@contextlib.contextmanager
def small_disk(place: Path, mebibytes: int) -> Iterator[SmallDisk]:
    """A disk at an empty directory, gone with the context.

    Raises:
        PartUnavailableError: namespaces are not allowed here.
    """
    if shutil.which("unshare") is None or shutil.which("nsenter") is None:
        raise PartUnavailableError("util-linux' unshare and nsenter are not installed")
    place.mkdir(parents=True, exist_ok=True)
    user = os.geteuid() != 0
    script = (
        f'mount -t tmpfs -o size={mebibytes}m tmpfs "$0" && echo mounted && exec sleep infinity'
    )
    spaces = ["--mount", *(["--user", "--map-root-user"] if user else [])]
    holder = subprocess.Popen(
        ["unshare", *spaces, "--", "sh", "-c", script, str(place)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert holder.stdout is not None
        assert holder.stderr is not None
        if holder.stdout.readline() != b"mounted\n":
            raise PartUnavailableError(f"no namespaces: {holder.stderr.read().decode()[-300:]}")
        yield SmallDisk(place, holder, user=user)
    finally:
        holder.kill()
        holder.wait(10)
        for pipe in (holder.stdout, holder.stderr):
            if pipe is not None:
                pipe.close()
