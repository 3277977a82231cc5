# SPDX-License-Identifier: Apache-2.0
"""Opening a data file to decode it: distinguishes damage from store failures, checks the length.

The length that the file's metadata records (FORMAT.md §4.4) is compared with what opening reported
anyway, so a truncated file is refused before any of it is decoded.
"""

import contextlib
from collections.abc import Iterator

import pyarrow as pa

from storage.errors import CorruptDataError, StorageUnavailableError, UnsupportedFeatureError
from storage.io.file_io import FileIO

_OUT_OF_RANGE = "out of range for nanosecond resolution"


def exceeds_nanoseconds(error: pa.ArrowInvalid) -> bool:
    """Whether the library refused a timestamp that 64-bit nanoseconds cannot hold."""
    return _OUT_OF_RANGE in str(error)


@contextlib.contextmanager
def decoding(path: str, expected: str) -> Iterator[None]:
    """Distinguish damaged bytes from a failing store while a file is decoded.

    Raises:
        CorruptDataError: the bytes are not what they should be.
        StorageUnavailableError: the store failed.
        UnsupportedFeatureError: a sound value that Arrow cannot hold.
        FileNotFoundError: there is no such file.
        PermissionError: as it is.
    """
    try:
        yield
    except (FileNotFoundError, PermissionError):
        raise
    except OSError as error:
        if error.errno is not None:
            raise StorageUnavailableError(
                "cannot read a data file", detail=str(error), path=path
            ) from error
        raise _corrupt(error, path, expected) from error
    except pa.ArrowInvalid as error:
        if exceeds_nanoseconds(error):
            raise UnsupportedFeatureError(
                "a timestamp is outside the years 1677 to 2262, which this format cannot hold",
                detail=str(error),
                hint="read this file with Apache Paimon, or keep such tables in Parquet",
                path=path,
            ) from error
        raise _corrupt(error, path, expected) from error
    except MemoryError:
        raise
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise _corrupt(error, path, expected) from error


def _corrupt(error: Exception, path: str, expected: str) -> CorruptDataError:
    return CorruptDataError(
        "a data file cannot be decoded", detail=str(error), path=path, expected=expected
    )


@contextlib.contextmanager
def open_data_file(
    file_io: FileIO, path: str, expected: str, file_size: int | None
) -> Iterator[pa.NativeFile]:
    """The opened file; errors raised while it is decoded are translated as by `decoding`.

    `file_size` is the recorded one [bytes], None where it is unknown.

    Raises:
        CorruptDataError: it is shorter than recorded.
        FileNotFoundError: there is no such file.
    """
    with file_io.open_input(path) as source, decoding(path, expected):
        size = int(source.size())
        if file_size is not None and size < file_size:
            raise CorruptDataError(
                "a data file is shorter than recorded", path=path, expected=file_size, found=size
            )
        yield source
