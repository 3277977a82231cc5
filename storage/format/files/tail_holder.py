# SPDX-License-Identifier: Apache-2.0
"""An output that can hold the last bytes of a file back, so that a footer can be changed.

pyarrow writes footers with other declarations than Paimon needs (`parquet.footer`, `orc.tail`).
"""

import io
from collections.abc import Callable
from typing import Any


class TailHolder(io.RawIOBase):
    """Passes bytes on to an output, or holds them.

    Protocol:
        1. writes are passed on until `hold`;
        2. writes after `hold` are kept in memory;
        3. `release` passes them on, changed.

    Args:
        output: binary sink with `write` and `tell`; never closed here.
    """

    def __init__(self, output: Any) -> None:
        super().__init__()
        self._output = output
        self._held_bytes: bytearray | None = None

    def writable(self) -> bool:
        """True."""
        return True

    def tell(self) -> int:
        """Bytes written so far, held ones included."""
        return int(self._output.tell()) + len(self._held_bytes or b"")

    def write(self, data: Any) -> int:
        """Pass bytes on, or keep them."""
        view = memoryview(data)
        if self._held_bytes is None:
            self._output.write(view)
        else:
            self._held_bytes += view
        return view.nbytes

    def hold(self) -> None:
        """Buffer all further writes."""
        self._held_bytes = bytearray()

    def release(self, change: Callable[[bytes], bytes]) -> None:
        """Pass the held bytes on, transformed by `change`."""
        tail = bytes(self._held_bytes or b"")
        self._held_bytes = None
        self._output.write(change(tail))
