# SPDX-License-Identifier: Apache-2.0
"""From the text of a warehouse location to a `FileIO` and the root path to use with it.

A location is a local path (relative ones are made absolute, `~` is the home directory) or a URI
`file:/path`, `file:///path`, `file://localhost/path`. As in Paimon, the path of a URI is taken
literally: `%20` stays three characters, because table paths hold percent signs of their own.
"""

import os
import re

from storage.errors import InvalidRequestError, UnsupportedFeatureError
from storage.io.file_io import FileIO
from storage.io.local import LocalFileIO

__all__ = ["resolve_file_io"]

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/(?!$)")


def resolve_file_io(warehouse: str) -> tuple[FileIO, str]:
    """The store of a warehouse and its root, an absolute path without a trailing slash.

    Raises:
        InvalidRequestError: the location is empty or names another host.
        UnsupportedFeatureError: the URI scheme has no `FileIO` yet.
    """
    if not warehouse.strip():
        raise InvalidRequestError(
            "a warehouse location is empty", hint="set it to a directory such as /data/warehouse"
        )
    scheme = _SCHEME.match(warehouse)
    if scheme is None:
        return LocalFileIO(), os.path.abspath(os.path.expanduser(warehouse))
    if scheme.group(1).lower() != "file":
        raise UnsupportedFeatureError(
            "this kind of storage is not supported yet",
            hint="use a local directory or a file:// URI, for example a mounted volume",
            warehouse=warehouse,
        )
    return LocalFileIO(), os.path.abspath(_path_of(warehouse[len("file:") :], warehouse))


def _path_of(rest: str, warehouse: str) -> str:
    """The path of what follows `file:`."""
    if not rest.startswith("//"):
        return rest
    host, slash, path = rest[2:].partition("/")
    if host not in ("", "localhost") or not path:
        raise InvalidRequestError(
            "a file URI must name a path on this machine",
            hint="write file:///path with three slashes",
            warehouse=warehouse,
        )
    return slash + path
