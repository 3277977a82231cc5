# SPDX-License-Identifier: Apache-2.0
"""Puffin files of deletion vectors. Source: Iceberg's Puffin specification."""

import dataclasses
import struct
from collections.abc import Iterable

import msgspec

_MAGIC = b"PFA1"
_ROW_POSITION = 2_147_483_645
"""Field id of the metadata column of row positions."""


@dataclasses.dataclass(frozen=True, slots=True)
class Blob:
    """The position of the vector of a data file in a Puffin file.

    Attributes:
        path: of the data file.
        offset: [bytes].
        length: [bytes].
        cardinality: deleted rows.
    """

    path: str
    offset: int
    length: int
    cardinality: int


def encode_puffin(vectors: Iterable[tuple[str, bytes, int]]) -> tuple[bytes, list[Blob]]:
    """A Puffin file with one `deletion-vector-v1` per data file.

    Args:
        vectors: paths of data files, their deletion vectors in the 64-bit form, and how many rows
            these delete.
    """
    parts, blobs, offset = [_MAGIC], [], len(_MAGIC)
    for path, part, cardinality in vectors:
        blobs.append(Blob(path, offset, len(part), cardinality))
        parts.append(part)
        offset += len(part)
    footer = msgspec.json.encode({"blobs": [_described(blob) for blob in blobs]})
    no_flags = 0
    end = struct.pack("<ii", len(footer), no_flags)
    return b"".join([*parts, _MAGIC, footer, end, _MAGIC]), blobs


def _described(blob: Blob) -> dict[str, object]:
    return {
        "type": "deletion-vector-v1",
        "fields": [_ROW_POSITION],
        "snapshot-id": -1,
        "sequence-number": -1,
        "offset": blob.offset,
        "length": blob.length,
        "properties": {
            "referenced-data-file": blob.path,
            "cardinality": str(blob.cardinality),
        },
    }
