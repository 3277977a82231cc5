# SPDX-License-Identifier: Apache-2.0
"""From the text of a warehouse location to a `FileIO` and the root path to use with it.

A location is a local path (relative ones are made absolute, `~` is the home directory), a URI
`file:/path`, `file:///path`, `file://localhost/path`, or an object store's URL
(`object_store.options`), or `hdfs://host:port/path`. As in Paimon, the path of a URI is taken
literally: `%20` stays three characters, because table paths hold percent signs of their own.
"""

import importlib
import os
import re
from collections.abc import Mapping

from storage.errors import InvalidOptionError, InvalidRequestError, UnsupportedFeatureError
from storage.io.file_io import FileIO
from storage.io.local import LocalFileIO
from storage.io.object_store_options import SCHEMES, locate

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/(?!$)")

_OBJECT_STORE = "storage.io.object_store"
_HDFS = "storage.io.hdfs"

_UNSUPPORTED = {
    "viewfs": "name the cluster itself: hdfs://host:port/path",
    "oss": "use its S3 endpoint: `s3://bucket` with `s3.endpoint`, if it honours conditional puts",
    "obs": "use its S3 endpoint: `s3://bucket` with `s3.endpoint`, if it honours conditional puts",
}


def is_local(location: str) -> bool:
    """Whether a location is a path or a `file:` URI, without checking that it exists."""
    scheme = _SCHEME.match(location)
    return scheme is None or scheme.group(1).lower() == "file"


def resolve_file_io(warehouse: str, options: Mapping[str, str] | None = None) -> tuple[FileIO, str]:
    """The store of a warehouse and its root, an absolute path or URL without a trailing slash.

    Raises:
        InvalidRequestError: the location is empty or names another host.
        InvalidOptionError: an option is unknown, malformed, or not for this kind of storage.
        UnsupportedFeatureError: the URI scheme has no `FileIO`, or no tested one.
    """
    if not warehouse.strip():
        raise InvalidRequestError(
            "a warehouse location is empty", hint="set it to a directory such as /data/warehouse"
        )
    match = _SCHEME.match(warehouse)
    scheme = "file" if match is None else match.group(1).lower()
    if scheme in SCHEMES:
        return _object_store(warehouse, options), locate(warehouse).path
    if scheme == "hdfs":
        return _hdfs(warehouse, options), warehouse.rstrip("/")
    if scheme != "file":
        schemes = ", ".join(f"{name}://" for name in ("file", *SCHEMES, "hdfs"))
        raise UnsupportedFeatureError(
            "this kind of storage is not supported",
            hint=_UNSUPPORTED.get(scheme, f"known are a local directory and {schemes}"),
            warehouse=warehouse,
        )
    if options:
        raise InvalidOptionError(
            "store options are for object stores and HDFS only",
            hint="remove them, or give the warehouse as s3://bucket/directory",
            key=min(options),
        )
    if match is None:
        return LocalFileIO(), os.path.abspath(os.path.expanduser(warehouse))
    return LocalFileIO(), os.path.abspath(_path_of(warehouse[len("file:") :], warehouse))


def _object_store(warehouse: str, options: Mapping[str, str] | None) -> FileIO:
    """The client library is imported only when a warehouse needs it; most never do."""
    file_io: FileIO = importlib.import_module(_OBJECT_STORE).ObjectStoreFileIO(warehouse, options)
    return file_io


def _hdfs(warehouse: str, options: Mapping[str, str] | None) -> FileIO:
    if "://" not in warehouse or not warehouse.partition("://")[2].partition("/")[2].strip("/"):
        raise InvalidRequestError(
            "an HDFS location must name a directory",
            hint="write hdfs://namenode:8020/directory, or hdfs:///directory",
            warehouse=warehouse,
        )
    try:
        file_io: FileIO = importlib.import_module(_HDFS).HdfsFileIO(warehouse, options)
    except ModuleNotFoundError as error:
        raise UnsupportedFeatureError(
            "a package that HDFS needs is not installed",
            detail=str(error),
            hint='pip install "lakeward[hdfs]"',
            warehouse=warehouse,
        ) from error
    return file_io


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
