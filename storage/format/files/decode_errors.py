# SPDX-License-Identifier: Apache-2.0
"""What a file library says of bytes it cannot decode, in our own errors.

pyarrow reports damage as ArrowInvalid, as OSError without errno, or as the bare ArrowException; a
failing store as OSError with errno. Our own errors pass through.
"""

import contextlib
from collections.abc import Iterator

import pyarrow as pa

from storage.errors import CorruptDataError, StorageUnavailableError, UnsupportedFeatureError

__all__ = ["decoding", "exceeds_nanoseconds"]

_OUT_OF_RANGE = "out of range for nanosecond resolution"


def exceeds_nanoseconds(error: pa.ArrowInvalid) -> bool:
    """Whether the library refused a timestamp that 64-bit nanoseconds cannot hold."""
    return _OUT_OF_RANGE in str(error)


@contextlib.contextmanager
def decoding(path: str, expected: str) -> Iterator[None]:
    """Distinguish damaged bytes from a failing store while a file is decoded.

    Args:
        path: the file.
        expected: what its bytes should be, such as "a Parquet file".

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
                "a timestamp lies outside the years 1677 to 2262, which this format cannot give",
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
