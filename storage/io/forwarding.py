# SPDX-License-Identifier: Apache-2.0
"""A store that hands every call to another one; derived classes change single calls."""

from typing import Any

from storage.io.file_io import FileIO


def _forwarded(name: str) -> Any:
    def call(self: "ForwardingFileIO", *arguments: Any) -> Any:
        return getattr(self.inner, name)(*arguments)

    return call


class ForwardingFileIO(FileIO):
    """See the module. Picklable as its inner store is."""

    def __init__(self, inner: FileIO) -> None:
        self.inner = inner
        self.distant = inner.distant

    read_bytes = _forwarded("read_bytes")
    read_many = _forwarded("read_many")
    open_input = _forwarded("open_input")
    open_output = _forwarded("open_output")
    write_bytes = _forwarded("write_bytes")
    overwrite_bytes = _forwarded("overwrite_bytes")
    overwrite_hint = _forwarded("overwrite_hint")
    put_if_absent = _forwarded("put_if_absent")
    exists = _forwarded("exists")
    is_file = _forwarded("is_file")
    size = _forwarded("size")
    list = _forwarded("list")
    walk = _forwarded("walk")
    delete = _forwarded("delete")
    delete_many = _forwarded("delete_many")
    prune = _forwarded("prune")
    rename_directory = _forwarded("rename_directory")
