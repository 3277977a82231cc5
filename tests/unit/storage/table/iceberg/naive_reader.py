# SPDX-License-Identifier: Apache-2.0
"""A naive Iceberg reader, from the specification alone: no code of the product."""

import json
import pathlib
import struct
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pyroaring

__all__ = ["data_files", "document", "files_of", "newest", "rows"]


def newest(table_root: str) -> pathlib.Path:
    """The metadata file that the hint names."""
    directory = pathlib.Path(table_root) / "metadata"
    return directory / f"v{(directory / 'version-hint.text').read_text()}.metadata.json"


def document(path: pathlib.Path) -> dict[str, Any]:
    """A metadata file."""
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def rows(
    metadata: pathlib.Path | dict[str, Any], snapshot_id: int | None = None
) -> list[tuple[Any, ...]]:
    """Rows of a snapshot as tuples, sorted by their text; None = the current one.

    Args:
        metadata: path or content of a metadata file.
    """
    found = metadata if isinstance(metadata, dict) else document(metadata)
    wanted = found["current-snapshot-id"] if snapshot_id is None else snapshot_id
    snapshot = next(one for one in found["snapshots"] if one["snapshot-id"] == wanted)
    schema = next(one for one in found["schemas"] if one["schema-id"] == snapshot["schema-id"])
    ids = [field["id"] for field in schema["fields"]]
    data, deleted = {}, {}
    for manifest in _records(snapshot["manifest-list"]):
        live = 0
        for entry in _records(manifest["manifest_path"]):
            if entry["status"] == 2:
                continue
            live += 1
            file = entry["data_file"]
            if file["content"] == 0:
                data[file["file_path"]] = file
            else:
                assert entry["sequence_number"] >= 1
                assert file["referenced_data_file"] not in deleted
                deleted[file["referenced_data_file"]] = _vector(file)
        assert live == manifest["added_files_count"] + manifest["existing_files_count"]
    assert deleted.keys() <= data.keys()
    result: list[tuple[Any, ...]] = []
    for name, file in data.items():
        columns = _columns(name, ids)
        assert len(columns[0]) == file["record_count"]
        gone = deleted.get(name, pyroaring.BitMap())
        every = zip(*(column.to_pylist() for column in columns), strict=True)
        result += [row for at, row in enumerate(every) if at not in gone]
    return sorted(result, key=repr)


def data_files(snapshot: dict[str, Any], content: int = 0) -> dict[str, dict[str, Any]]:
    """The live data files of a snapshot by path; with content 1 vectors, by their data file."""
    found = {}
    for manifest in _records(snapshot["manifest-list"]):
        for entry in _records(manifest["manifest_path"]):
            file = entry["data_file"]
            if entry["status"] != 2 and file["content"] == content:
                found[file.get("referenced_data_file") or file["file_path"]] = file
    return found


def files_of(snapshot: dict[str, Any]) -> set[str]:
    """Names of the metadata files of a snapshot; none when it has expired."""
    path = pathlib.Path(snapshot["manifest-list"])
    if not path.exists():
        return set()
    found = {path.name}
    for manifest in _records(str(path)):
        found.add(pathlib.Path(manifest["manifest_path"]).name)
        if manifest["content"] == 1:
            entries = _records(manifest["manifest_path"])
            live = [one["data_file"] for one in entries if one["status"] != 2]
            found |= {pathlib.Path(one["file_path"]).name for one in live}
    return found


def _records(path: str) -> list[Any]:
    with pathlib.Path(path).open("rb") as file:
        return list(fastavro.reader(file))


def _columns(path: str, ids: list[int]) -> list[pa.ChunkedArray]:
    found = pq.read_table(path)
    by_id = {int(field.metadata[b"PARQUET:field_id"]): field.name for field in found.schema}
    nulls = pa.chunked_array([pa.nulls(found.num_rows)])
    return [found.column(by_id[one]) if one in by_id else nulls for one in ids]


def _vector(file: dict[str, Any]) -> pyroaring.BitMap64:
    content = pathlib.Path(file["file_path"]).read_bytes()
    assert content[:4] == content[-4:] == b"PFA1"
    assert len(content) == file["file_size_in_bytes"]
    (footer,) = struct.unpack_from("<i", content, len(content) - 12)
    blobs = json.loads(content[-12 - footer : -12])["blobs"]
    blob = next(one for one in blobs if one["offset"] == file["content_offset"])
    assert blob["length"] == file["content_size_in_bytes"]
    assert blob["properties"]["referenced-data-file"] == file["referenced_data_file"]
    data = content[blob["offset"] : blob["offset"] + blob["length"]]
    assert data[4:8] == bytes.fromhex("d1d33964")
    bitmap = pyroaring.BitMap64.deserialize(data[8:-4])
    assert len(bitmap) == file["record_count"] == int(blob["properties"]["cardinality"])
    return bitmap
