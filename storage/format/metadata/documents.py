# SPDX-License-Identifier: Apache-2.0
"""Small JSON files of a table, read so that a damaged one is named by its path.

Snapshots, schemas, tags, consumers and statistics are such documents (FORMAT.md §2, §3, §11). Each
kind knows how to parse itself from bytes; this module adds where the bytes came from.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from storage.errors import CorruptDataError
from storage.io.file_io import FileIO

_Document = TypeVar("_Document")


def read_document(file_io: FileIO, path: str, parse: Callable[[bytes], _Document]) -> _Document:
    """Read and parse one file.

    Raises:
        FileNotFoundError: there is none.
        CorruptDataError: its bytes are no such document; names the path.
    """
    return parse_document(file_io.read_bytes(path), path, parse)


def parse_document(data: bytes, path: str, parse: Callable[[bytes], _Document]) -> _Document:
    """Parse what was read from a path; errors name the path."""
    try:
        return parse(data)
    except CorruptDataError as error:
        context = {"path": path, "size": len(data), **error.context}
        raise CorruptDataError(
            error.message, detail=error.detail, hint=error.hint, **context
        ) from error


def parse_object(data: bytes, what: str) -> dict[str, Any]:
    """A JSON object.

    Raises:
        CorruptDataError: the bytes are not JSON, or not an object.
    """
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CorruptDataError(f"not a {what} file", detail=repr(error)) from error
    if not isinstance(value, dict):
        raise CorruptDataError(
            f"not a {what} file", expected="an object", found=type(value).__name__
        )
    return value


def dump_object(value: Mapping[str, Any]) -> bytes:
    """The bytes of a document: indented UTF-8 JSON, members in their order."""
    return json.dumps(value, indent=2, ensure_ascii=False).encode()
