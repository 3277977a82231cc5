# SPDX-License-Identifier: Apache-2.0
"""A calendar clock of its own for a process and its children, that can be set while they run."""

import mmap
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

__all__ = ["ClockShift"]

_SOURCE = Path(__file__).with_suffix(".c")


class ClockShift:
    """Compiles `clock_shift.c`; skips the test where there is no C compiler.

    Args:
        directory: for the library and the file that tells the shift.
    """

    def __init__(self, directory: Path) -> None:
        compiler = shutil.which("cc")
        if compiler is None:
            pytest.skip("there is no C compiler (`cc`)")
        library, told = directory / "clock_shift.so", directory / "clock_shift"
        options = ["-O2", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror"]
        subprocess.run([compiler, *options, "-o", library, _SOURCE, "-ldl"], check=True)
        told.write_bytes(struct.pack("=q", 0))
        with told.open("r+b") as file:
            self._told = mmap.mmap(file.fileno(), 8)
        self.environment = {"LD_PRELOAD": str(library), "CLOCK_SHIFT": str(told)}

    def set(self, seconds: int) -> None:
        """From now on clocks are so many seconds ahead of the machine's."""
        self._told[:] = struct.pack("=q", seconds)
