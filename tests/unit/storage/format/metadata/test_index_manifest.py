# SPDX-License-Identifier: Apache-2.0
import io
import json

import fastavro
import pytest

from storage.errors import CorruptDataError, FileConflictError
from storage.format.avro.container import ContainerWriter, read_records
from storage.format.metadata.file_meta import (
    EMPTY_ROW,
    DeletionVectorMeta,
    FileKind,
    IndexFileMeta,
    IndexManifestEntry,
    IndexType,
)
from storage.format.metadata.manifest import (
    INDEX_SCHEMA,
    combine,
    decode_index_entries,
    encode_index_entries,
    removal,
)
from tests.unit.storage.golden_tables import GOLDEN

MANIFESTS = sorted(GOLDEN.glob("*/table/manifest/index-manifest-*"))
GLOBAL_INDEX = {
    "_ROW_RANGE_START": 0,
    "_ROW_RANGE_END": 99,
    "_INDEX_FIELD_ID": 3,
    "_EXTRA_FIELD_IDS": [4, 5],
    "_INDEX_META": b"meta",
    "_SOURCE_META": None,
}


def index_file(
    name: str, kind: str = IndexType.DELETION_VECTORS, vectors: str = ""
) -> IndexFileMeta:
    metas = tuple(
        DeletionVectorMeta(data_file_name=one, offset=1 + 30 * n, length=22, cardinality=1)
        for n, one in enumerate(vectors)
    )
    return IndexFileMeta(
        index_type=kind,
        file_name=name,
        file_size=31,
        row_count=len(metas),
        deletion_vectors=metas if kind == IndexType.DELETION_VECTORS else None,
    )


def add(file: IndexFileMeta, bucket: int = 0) -> IndexManifestEntry:
    return IndexManifestEntry(kind=FileKind.ADD, partition=EMPTY_ROW, bucket=bucket, file=file)


def drop(file: IndexFileMeta, bucket: int = 0) -> IndexManifestEntry:
    return removal(add(file, bucket))


def names(entries: tuple[IndexManifestEntry, ...]) -> list[str]:
    return [entry.file.file_name for entry in entries]


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: f"{path.parts[-4]}-{path.name[-8:]}")
def test_manifests_of_java_are_read_and_written_with_its_schema(path):
    data = path.read_bytes()
    entries = decode_index_entries(data, source=str(path))
    assert entries
    written = encode_index_entries(entries)
    assert decode_index_entries(written) == entries
    assert fastavro.reader(io.BytesIO(data)).metadata["avro.schema"] == INDEX_SCHEMA
    assert list(read_records(written)) == list(read_records(data))


def test_what_is_not_understood_is_kept():
    known = index_file("index-1", vectors="ab")
    other = IndexFileMeta(
        index_type="btree",
        file_name="global-index-1",
        file_size=7,
        row_count=100,
        external_path="s3://elsewhere/global-index-1",
        global_index=GLOBAL_INDEX,
    )
    entries = (add(known), add(other, bucket=3))
    assert decode_index_entries(encode_index_entries(entries)) == entries
    combined = combine(entries, [drop(known), add(index_file("index-2"))], by_file_name=False)
    assert entries[1] in combined


def test_fields_of_later_versions_may_be_missing():
    fields = [f for f in json.loads(INDEX_SCHEMA)["fields"] if f["name"] not in
              ("_EXTERNAL_PATH", "_GLOBAL_INDEX")]  # fmt: skip
    writer = ContainerWriter(json.dumps({**json.loads(INDEX_SCHEMA), "fields": fields}))
    writer.append({"_VERSION": 1, "_KIND": 0, "_PARTITION": EMPTY_ROW, "_BUCKET": 2,
                   "_INDEX_TYPE": "HASH", "_FILE_NAME": "h", "_FILE_SIZE": 8, "_ROW_COUNT": 2,
                   "_DELETIONS_VECTORS_RANGES": None})  # fmt: skip
    (entry,) = decode_index_entries(writer.finish())
    assert (entry.bucket, entry.file.index_type, entry.file.row_count) == (2, IndexType.HASH, 2)
    assert entry.file.deletion_vectors is None


@pytest.mark.parametrize(("field", "value"), [("_VERSION", 2), ("_KIND", 1)])
def test_records_of_another_kind_are_refused(field, value):
    entry = add(index_file("i"))
    writer = ContainerWriter(INDEX_SCHEMA)
    writer.append({"_VERSION": 1, "_KIND": 0, "_PARTITION": EMPTY_ROW, "_BUCKET": 0,
                   "_INDEX_TYPE": "HASH", "_FILE_NAME": "h", "_FILE_SIZE": 8, "_ROW_COUNT": 2,
                   "_DELETIONS_VECTORS_RANGES": None, field: value})  # fmt: skip
    with pytest.raises(CorruptDataError, match="index manifest") as raised:
        decode_index_entries(writer.finish(), source="manifest/x")
    assert raised.value.context["path"] == "manifest/x"
    with pytest.raises(CorruptDataError):
        decode_index_entries(encode_index_entries([entry])[:-20])


@pytest.mark.parametrize("kind", [IndexType.HASH, IndexType.DELETION_VECTORS])
def test_a_bucket_has_one_file_of_a_type(kind):
    old, new = index_file("old", kind), index_file("new", kind)
    before = (add(old), add(index_file("other", kind), bucket=1))
    after = combine(before, [drop(old), add(new)], by_file_name=False)
    assert names(after) == ["other", "new"]
    with pytest.raises(FileConflictError, match="index file conflicts"):
        combine(before, [add(new)], by_file_name=False)
    with pytest.raises(FileConflictError, match="index file conflicts"):
        combine(before, [drop(index_file("seen earlier", kind)), add(new)], by_file_name=False)
    with pytest.raises(FileConflictError, match="index file conflicts"):
        combine((), [drop(old), add(new)], by_file_name=False)


def test_types_do_not_replace_each_other():
    before = (add(index_file("h", IndexType.HASH)),)
    after = combine(before, [add(index_file("d", vectors="a"))], by_file_name=False)
    assert names(after) == ["h", "d"]


def test_a_bucket_of_an_append_table_has_many_files():
    one, two = index_file("one", vectors="ab"), index_file("two", vectors="c")
    before = combine((), [add(one), add(two)], by_file_name=True)
    assert names(before) == ["one", "two"]
    rest, new = index_file("rest", vectors="b"), index_file("new", vectors="a")
    after = combine(before, [add(rest), add(new), drop(one)], by_file_name=True)
    assert names(after) == ["two", "rest", "new"]


@pytest.mark.parametrize("by_file_name", [True, False])
def test_a_data_file_has_one_vector(by_file_name):
    before = (add(index_file("one", vectors="ab")),)
    changes = [add(index_file("two", vectors="b"))]
    with pytest.raises(FileConflictError, match="index file conflicts"):
        combine(before, changes, by_file_name=by_file_name)


def test_one_file_is_not_added_or_removed_twice():
    one = index_file("one", vectors="a")
    with pytest.raises(FileConflictError):
        combine((add(one),), [add(index_file("one"))], by_file_name=True)
    with pytest.raises(FileConflictError):
        combine((add(one),), [drop(one), drop(one)], by_file_name=True)
