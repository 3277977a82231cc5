# SPDX-License-Identifier: Apache-2.0
"""Opening a data file to decode it: damage is no fault of the store, and its length is checked.

The length that the file's metadata records (FORMAT.md §4.4) is compared with what opening reported
anyway, so a file that was cut short is refused before anything of it is believed.
"""

import contextlib
from collections.abc import Iterator

import pyarrow as pa

from storage.errors import CorruptDataError
from storage.format.files.decode_errors import decoding
from storage.io.file_io import FileIO

__all__ = ["open_data_file"]


@contextlib.contextmanager
def open_data_file(
    file_io: FileIO, path: str, expected: str, file_size: int | None
) -> Iterator[pa.NativeFile]:
    """The opened file; what is raised while it is decoded is as `decoding` says.

    Args:
        file_io: the store.
        path: the file.
        expected: what its bytes should be, such as "a Parquet file".
        file_size: recorded size [bytes], or None when it is unknown.

    Raises:
        CorruptDataError: it is shorter than recorded.
        FileNotFoundError: there is no such file.
    """
    with file_io.open_input(path) as source, decoding(path, expected):
        found = int(source.size())
        if file_size is not None and found < file_size:
            raise CorruptDataError(
                "a data file is shorter than recorded", path=path, expected=file_size, found=found
            )
        yield source
