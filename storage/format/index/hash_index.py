# SPDX-License-Identifier: Apache-2.0
"""The HASH index file of a dynamic bucket: the hashes of all keys that live in it.

Source: FORMAT.md §9.1. No header; big-endian 32-bit words, in any order.
"""

import numpy as np
import numpy.typing as npt

from storage.errors import CorruptDataError

HASH_BYTES = 4
"""Size of one hash in the file."""


def encode(hashes: npt.NDArray[np.int32]) -> bytes:
    """The file with these hashes, in this order."""
    return hashes.astype(">i4").tobytes()


def decode(data: bytes, path: str = "") -> npt.NDArray[np.int32]:
    """The hashes of a file, in file order.

    Raises:
        CorruptDataError: the file ends inside a hash.
    """
    if len(data) % HASH_BYTES:
        raise CorruptDataError(
            "a hash index file ends inside a hash",
            path=path,
            offset=len(data) - len(data) % HASH_BYTES,
            expected="a multiple of 4 bytes",
            found=len(data),
        )
    return np.frombuffer(data, ">i4").astype(np.int32)
