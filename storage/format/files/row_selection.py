# SPDX-License-Identifier: Apache-2.0
"""Which physical rows of one data file a reader returns.

Deletion vectors and file indexes both speak of 0-based row positions in a file. A reader asks
per piece of the file, so that pieces without a selected row need not be decoded.
"""

import contextlib
import dataclasses
import io
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyroaring

from storage.errors import CorruptDataError, StorageUnavailableError, UnsupportedFeatureError
from storage.io.file_io import FileIO

Bitmap = pyroaring.BitMap | pyroaring.BitMap64
"""Row positions."""


class RowSelection(Protocol):
    """Rows of one file by position. Picklable."""

    def mask(self, start: int, count: int) -> npt.NDArray[np.bool_] | None:
        """Which of the rows `start` to `start + count - 1` are selected; None = all of them."""

    def empty(self, start: int, count: int) -> bool:
        """Whether none of these rows is selected."""


def _positions(rows: Bitmap, start: int, count: int) -> npt.NDArray[np.int64]:
    """Members of `rows` in the range, relative to `start`, ascending."""
    window = range(start, start + count)
    if isinstance(rows, pyroaring.BitMap):
        members = (rows & pyroaring.BitMap(window)).to_array()
    else:
        members = (rows & pyroaring.BitMap64(window)).to_array()
    return np.asarray(members, np.int64) - start


@dataclasses.dataclass(frozen=True, slots=True)
class Except:
    """All rows but some: what a deletion vector leaves."""

    rows: Bitmap

    def mask(self, start: int, count: int) -> npt.NDArray[np.bool_] | None:
        """See `RowSelection`."""
        positions = _positions(self.rows, start, count)
        if not len(positions):
            return None
        mask = np.ones(count, np.bool_)
        mask[positions] = False
        return mask

    def empty(self, start: int, count: int) -> bool:
        """See `RowSelection`."""
        return len(_positions(self.rows, start, count)) == count


@dataclasses.dataclass(frozen=True, slots=True)
class Only:
    """Some rows and no others: what an exact index answers."""

    rows: Bitmap

    def mask(self, start: int, count: int) -> npt.NDArray[np.bool_] | None:
        """See `RowSelection`."""
        positions = _positions(self.rows, start, count)
        if len(positions) == count:
            return None
        mask = np.zeros(count, np.bool_)
        mask[positions] = True
        return mask

    def empty(self, start: int, count: int) -> bool:
        """See `RowSelection`."""
        return not len(_positions(self.rows, start, count))


@dataclasses.dataclass(frozen=True, slots=True)
class AllOf:
    """The intersection of several selections."""

    parts: tuple[RowSelection, ...]

    def mask(self, start: int, count: int) -> npt.NDArray[np.bool_] | None:
        """See `RowSelection`."""
        masks = [mask for part in self.parts if (mask := part.mask(start, count)) is not None]
        return np.logical_and.reduce(masks) if masks else None

    def empty(self, start: int, count: int) -> bool:
        """See `RowSelection`."""
        if any(part.empty(start, count) for part in self.parts):
            return True
        mask = self.mask(start, count)
        return mask is not None and not mask.any()


# Opening a data file to decode it: distinguishes damage from store failures, checks the length.
#
# The length that the file's metadata records (FORMAT.md §4.4) is compared with what opening
# reported anyway, so a truncated file is refused before any of it is decoded.


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


# An output that can hold the last bytes of a file back, so that a footer can be changed.
#
# pyarrow writes footers with other declarations than Paimon needs (`parquet.footer`, `orc.tail`).


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
