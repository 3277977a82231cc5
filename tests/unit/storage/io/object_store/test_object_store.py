# SPDX-License-Identifier: Apache-2.0
"""The object store: the contract on a store in memory, lost answers, options, ranges, errors."""

import errno
import pickle
import random
from concurrent.futures import ThreadPoolExecutor

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from obstore.exceptions import AlreadyExistsError, BaseError, GenericError, PermissionDeniedError
from obstore.store import MemoryStore

from storage.errors import (
    InternalError,
    InvalidOptionError,
    InvalidRequestError,
    NotFoundError,
    StorageUnavailableError,
    UnsupportedFeatureError,
)
from storage.io import object_store
from storage.io.file_io import TAIL_BYTES, RangeReader
from storage.io.object_store import ObjectStoreFileIO, connect, store_error
from storage.io.object_store_options import locate, redacted_options
from storage.io.resolve import is_local, resolve_file_io
from tests.unit.storage.file_io_contract import FileIOContract, fail_while_writing

ROOT = "s3://memory/w"


@pytest.fixture
def store():
    return ObjectStoreFileIO.in_memory()


class TestContract(FileIOContract):
    @pytest.fixture
    def root(self):
        return ROOT


class Faults:
    """Stands between the module and obstore's `put`: fails some calls before or after the fact."""

    def __init__(self, monkeypatch, *plan):
        self.plan = list(plan)
        self.real = obstore.put
        self.calls = 0
        monkeypatch.setattr(object_store.obstore, "put", self)

    def __call__(self, *args, **kwargs):
        self.calls += 1
        step = self.plan.pop(0) if self.plan else "pass"
        if step == "lost request":
            raise GenericError("error sending request: connection reset")
        result = self.real(*args, **kwargs)
        if step == "lost answer":
            raise GenericError("error sending request: operation timed out")
        if step == "client repeats":
            raise AlreadyExistsError("412 to the client's own second try")
        return result


@pytest.mark.parametrize("fault", ["lost answer", "client repeats", "lost request"])
def test_a_put_whose_answer_is_lost_is_known_to_be_ours(store, monkeypatch, fault):
    Faults(monkeypatch, fault)
    assert store.put_if_absent(f"{ROOT}/snapshot-1", b"mine") is True
    assert store.read_bytes(f"{ROOT}/snapshot-1") == b"mine"


def test_a_rival_with_the_same_bytes_is_not_taken_for_us(store, monkeypatch):
    assert store.put_if_absent(f"{ROOT}/schema-0", b"same")
    Faults(monkeypatch, "lost request", "lost request", "lost request")
    assert store.put_if_absent(f"{ROOT}/schema-0", b"same") is False


def test_without_metadata_the_bytes_decide(store, monkeypatch):
    obstore.put(store._store, "w/snapshot-1", b"theirs")
    assert store.put_if_absent(f"{ROOT}/snapshot-1", b"mine") is False
    obstore.put(store._store, "w/snapshot-2", b"mine")
    assert store.put_if_absent(f"{ROOT}/snapshot-2", b"mine") is True


def test_an_outcome_that_cannot_be_found_out_is_an_error(store, monkeypatch):
    faults = Faults(monkeypatch, *["lost request"] * 9)
    with pytest.raises(StorageUnavailableError, match="unknown whether"):
        store.put_if_absent(f"{ROOT}/snapshot-1", b"mine")
    assert faults.calls == 3


def test_a_refusal_that_contradicts_what_is_there_is_tried_again(store, monkeypatch):
    """S3 answers 409 to one of two concurrent puts; it may be that neither remains."""
    real, seen = obstore.put, []

    def put(*args, **kwargs):
        seen.append(1)
        if len(seen) == 1:
            raise AlreadyExistsError("409 ConditionalRequestConflict")
        return real(*args, **kwargs)

    monkeypatch.setattr(object_store.obstore, "put", put)
    assert store.put_if_absent(f"{ROOT}/snapshot-1", b"mine") is True


def test_a_store_that_ignores_the_condition_is_refused(store, monkeypatch):
    real = obstore.put
    monkeypatch.setattr(
        object_store.obstore, "put", lambda *a, **k: real(*a, **{**k, "mode": "overwrite"})
    )
    store._unproven = True
    with pytest.raises(UnsupportedFeatureError, match="ignores `If-None-Match`"):
        store.put_if_absent(f"{ROOT}/snapshot/snapshot-1", b"mine")
    assert store.list(ROOT) == []


def test_a_store_that_heeds_it_is_tried_out_once(store):
    store._unproven = True
    assert store.put_if_absent(f"{ROOT}/snapshot/snapshot-1", b"mine")
    assert store._unproven is False
    assert [s.name for s in store.list(f"{ROOT}/snapshot")] == ["snapshot-1"]


def ranged(data, pool, window=None):
    asked = []

    def fetch(start, count):
        assert start >= 0
        assert start + count <= len(data)
        asked.append((start, count))
        return memoryview(data)[start : start + count]

    tail = memoryview(data)[max(0, len(data) - TAIL_BYTES) :]
    return RangeReader("f", len(data), tail, fetch, pool), asked


@pytest.fixture(scope="module")
def blob():
    return random.Random(7).randbytes(24 << 20)


@pytest.fixture(scope="module")
def pool():
    with ThreadPoolExecutor(4) as executor:
        yield executor


def test_a_scan_asks_few_times_and_for_each_byte_once(blob, pool):
    reader, asked = ranged(blob, pool)
    found = b"".join(bytes(reader.read(64 << 10)) for _ in range(len(blob) >> 16))
    assert found == blob
    assert len(asked) <= 16
    assert sum(count for _, count in asked) == len(blob) - TAIL_BYTES


def test_single_reads_get_little_more_than_they_want(blob, pool):
    reader, asked = ranged(blob, pool)
    for start in range(1 << 20, 20 << 20, 3 << 20):
        reader.seek(start)
        assert reader.read(1000) == blob[start : start + 1000]
    assert sum(count for _, count in asked) <= 7 * (64 << 10)


def test_a_long_read_is_fetched_in_pieces(blob, pool):
    reader, asked = ranged(blob, pool)
    assert reader.read() == blob
    assert len(asked) >= 5
    assert sum(count for _, count in asked) == len(blob) - TAIL_BYTES


def test_a_small_file_needs_no_request_after_opening(pool):
    reader, asked = ranged(b"0123456789", pool)
    assert reader.readall() == b"0123456789"
    buffer = bytearray(4)
    reader.seek(8)
    assert reader.readinto(buffer) == 2
    assert asked == []


@pytest.mark.parametrize("seed", range(20))
def test_any_sequence_of_reads_gives_the_files_bytes(blob, pool, seed):
    chance = random.Random(seed)
    data = blob[: chance.choice([1, 1000, TAIL_BYTES, TAIL_BYTES + 1, 3 << 20, 9 << 20])]
    reader, _ = ranged(data, pool)
    position = 0
    for _ in range(60):
        if chance.random() < 0.4:
            position = chance.randrange(len(data) + 10)
            reader.seek(position)
        count = int(chance.choice([0, 1, 100, 70_000, 1 << 20, 5 << 20]) * chance.random())
        found = bytes(reader.read(count))
        assert found == data[position : position + count]
        position += len(found)


def test_parquet_reads_only_the_columns_it_needs(store, monkeypatch):
    rows = 600_000
    noise = random.Random(3)
    columns = {name: noise.randbytes(8 * rows) for name in "abcd"}
    table = pa.table(
        {n: pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(b)])
         for n, b in columns.items()}
    )  # fmt: skip
    with store.open_output(f"{ROOT}/f.parquet") as sink:
        pq.write_table(table, sink, use_dictionary=False, compression=None)
    total = store.size(f"{ROOT}/f.parquet")
    read, real = [], obstore.get_range

    def counted(*args, **kwargs):
        read.append(kwargs["length"])
        return real(*args, **kwargs)

    monkeypatch.setattr(object_store.obstore, "get_range", counted)
    with store.open_input(f"{ROOT}/f.parquet") as source:
        found = pq.ParquetFile(source, pre_buffer=False).read(columns=["c"])
    assert found.column("c") == table.column("c")
    assert sum(read) < total * 0.35


def test_errors_of_a_read_come_through_pyarrow(store, monkeypatch):
    with store.open_output(f"{ROOT}/f.parquet") as sink:
        pq.write_table(pa.table({"a": random.Random(1).choices(range(1 << 40), k=200_000)}), sink)

    def gone(*args, **kwargs):
        raise GenericError("error sending request")

    monkeypatch.setattr(object_store.obstore, "get_range", gone)
    with store.open_input(f"{ROOT}/f.parquet") as source:
        file = pq.ParquetFile(source, pre_buffer=False)
        with pytest.raises(StorageUnavailableError, match="read"):
            file.read()


def test_a_lost_answer_to_the_end_of_an_upload_is_settled_by_size(store, monkeypatch):
    real = obstore.open_writer

    class Losing:
        def __init__(self, inner):
            self.inner = inner
            self.write = inner.write

        def close(self):
            self.inner.close()
            raise GenericError("operation timed out")

    monkeypatch.setattr(object_store.obstore, "open_writer", lambda *a, **k: Losing(real(*a, **k)))
    with store.open_output(f"{ROOT}/big") as sink:
        sink.write(b"x" * (9 << 20))
    assert store.size(f"{ROOT}/big") == 9 << 20


ANSWER = "Error performing GET http://h/b/k in 1ms - Server returned non-2xx status code: {}: {}"


@pytest.mark.parametrize(
    ("error", "expected", "says"),
    [
        (GenericError(ANSWER.format(503, "<Code>SlowDown</Code>")), StorageUnavailableError, ""),
        (GenericError("error sending request"), StorageUnavailableError, "s3.endpoint"),
        (GenericError(ANSWER.format(403, "<Code>AccessDenied</Code>")), PermissionError, "access"),
        (PermissionDeniedError("no"), PermissionError, "s3.secret-key"),
        (GenericError(ANSWER.format(400, "<Code>ExpiredToken</Code>")), PermissionError, "Expired"),
        (FileNotFoundError("Object at location k not found"), FileNotFoundError, ""),
        (
            FileNotFoundError(ANSWER.format(404, "<Code>NoSuchBucket</Code>")),
            NotFoundError,
            "make the bucket",
        ),
        (GenericError(ANSWER.format(404, "<Code>NoSuchBucket</Code>")), NotFoundError, "bucket"),
        (
            GenericError(ANSWER.format(301, "<Code>PermanentRedirect</Code>")),
            InvalidRequestError,
            "s3.region",
        ),
        (GenericError(ANSWER.format(501, "NotImplemented")), UnsupportedFeatureError, ""),
        (GenericError(ANSWER.format(400, "<Code>KeyTooLong</Code>")), InvalidRequestError, "Key"),
        (
            GenericError("error getting credentials: http://169.254.169.254/latest"),
            StorageUnavailableError,
            "no credentials were found",
        ),
    ],
)
def test_errors_by_meaning(error, expected, says):
    found = store_error("read", "s3://b/k", error)
    assert type(found) is expected
    assert says in str(found)


def test_an_error_without_a_file_has_an_errno(store):
    with pytest.raises(FileNotFoundError) as caught:
        store.read_bytes(f"{ROOT}/missing")
    assert caught.value.errno == errno.ENOENT


SECRETS = {"s3.access-key": "AKIA1", "s3.secret-key": "hush", "s3.session-token": "hush2"}


def test_secrets_are_hidden_from_texts_and_travel_with_the_pickle():
    store = ObjectStoreFileIO("s3://b/w", {**SECRETS, "s3.endpoint": "http://127.0.0.1:1"})
    shown = f"{store!r} {store}"
    for secret in SECRETS.values():
        assert secret not in shown
    assert "127.0.0.1:1" in shown
    again = pickle.loads(pickle.dumps(store))
    assert again._options == store._options
    assert again.root == "s3://b"
    assert redacted_options({"s3.kms-key-id": "arn"}) == {"s3.kms-key-id": "arn"}


def test_a_store_in_memory_stays_in_its_process(store):
    assert isinstance(store._store, MemoryStore)
    with pytest.raises(InternalError):
        pickle.dumps(store)


@pytest.mark.parametrize(
    ("options", "config"),
    [
        ({}, {"virtual_hosted_style_request": "true"}),
        ({"s3.endpoint": "http://h:1"}, {"endpoint": "http://h:1"}),
        ({"s3a.endpoint": "h:1"}, {"endpoint": "https://h:1"}),
        (
            {"fs.s3a.endpoint": "http://h:1", "fs.s3a.path.style.access": "false"},
            {"endpoint": "http://b.h:1", "virtual_hosted_style_request": "true"},
        ),
        ({"s3.region": "eu-central-1"}, {"region": "eu-central-1"}),
        ({"s3.access.key": "a", "s3.secret.key": "s"}, {"access_key_id": "a"}),
        ({"s3.anonymous": "true"}, {"skip_signature": "true"}),
    ],
)
def test_options_of_s3(options, config):
    store, _ = connect(locate("s3://b/w"), options, {})
    assert {k: str(v).lower() for k, v in store.config.items() if k in config} == config


def test_the_environment_is_the_default():
    environ = {"AWS_ENDPOINT_URL": "http://h:9"}
    store, unproven = connect(locate("s3://b"), {}, environ)
    assert store.config["endpoint"] == "http://h:9"
    assert unproven
    assert connect(locate("s3://b"), {"s3.endpoint": "http://other"}, environ)[0].config[
        "endpoint"
    ] == ("http://other")
    assert not connect(locate("s3://b"), {}, {})[1]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"s3.enpoint": "x"}, "s3.endpoint"),
        ({"warehouse": "x"}, "known are"),
        ({"s3.path-style-access": "maybe"}, "s3.path-style-access"),
        ({"store.request-timeout": "soon"}, "store.request-timeout"),
    ],
)
def test_bad_options_are_named(options, says):
    with pytest.raises(InvalidOptionError, match=says):
        ObjectStoreFileIO("s3://b/w", options)


def test_a_bad_secret_is_not_repeated():
    with pytest.raises(InvalidOptionError) as caught:
        ObjectStoreFileIO("s3://b/w", {"s3.secret-key": " "})
    assert "hush" not in str(caught.value)
    with pytest.raises(InvalidRequestError) as refused:
        ObjectStoreFileIO("s3://AKIA:hush@b/w")
    assert "hush" not in str(refused.value)


def test_locations():
    assert locate("s3a://b/w/").path == "s3://b/w"
    assert locate("s3://b").path == "s3://b"
    assert locate("abfss://c@a.dfs.core.windows.net/x/y").key == "x/y"
    file_io, root = resolve_file_io("s3a://bucket/ware house/", {"s3.region": "eu-west-1"})
    assert isinstance(file_io, ObjectStoreFileIO)
    assert root == "s3://bucket/ware house"
    assert not is_local("s3://b/w")
    assert is_local("/x") is is_local("file:///x") is True
    with pytest.raises(InvalidRequestError):
        locate("s3:///w")


def test_both_spellings_of_a_path_mean_the_same_and_others_are_refused(store):
    store.write_bytes("s3a://memory/x", b"1")
    assert store.read_bytes("s3://memory/x") == b"1"
    for foreign in ("s3://memory2/x", "/x", "s3://other/x"):
        with pytest.raises(InvalidRequestError):
            store.read_bytes(foreign)


@pytest.mark.parametrize("location", ["gs://b/w", "abfss://c@a.dfs.core.windows.net/w", "az://c/w"])
def test_untested_stores_need_leave(location):
    with pytest.raises(UnsupportedFeatureError, match="allow-untested"):
        resolve_file_io(location)


@pytest.mark.parametrize(
    ("location", "options"),
    [
        ("gs://b/w", {"gs.skip-signature": "true"}),
        ("abfss://c@a.dfs.core.windows.net/w", {"az.account-key": "aHVzaA=="}),
        ("az://c/w", {"az.account-name": "a", "az.skip-signature": "true"}),
    ],
)
def test_untested_stores_can_be_opened_with_leave(location, options):
    file_io, root = resolve_file_io(location, {**options, "store.allow-untested": "true"})
    assert isinstance(file_io, ObjectStoreFileIO)
    assert root == location
    assert "aHVzaA" not in repr(file_io)
    with pytest.raises(InvalidOptionError):
        resolve_file_io(location, {"s3.region": "x", "store.allow-untested": "true"})


def test_options_are_refused_for_a_local_warehouse(tmp_path):
    with pytest.raises(InvalidOptionError, match="object stores and HDFS only"):
        resolve_file_io(str(tmp_path), {"s3.region": "x"})


def test_a_process_forked_after_first_use_is_told_so(monkeypatch):
    runtime = object_store._Runtime()
    runtime.enter()
    runtime._forked()
    with pytest.raises(InternalError, match="spawn"):
        runtime.enter()
    unused = object_store._Runtime()
    unused._forked()
    unused.enter()


def test_an_upload_is_aborted_when_the_writer_fails(store, monkeypatch):
    ended = []
    real = obstore.open_writer

    class Watched:
        def __init__(self, inner):
            self.inner = inner
            self.write = inner.write

        def __exit__(self, kind, *rest):
            ended.append(kind)
            return self.inner.__exit__(kind, *rest)

    monkeypatch.setattr(object_store.obstore, "open_writer", lambda *a, **k: Watched(real(*a, **k)))
    with pytest.raises(RuntimeError):
        fail_while_writing(store, f"{ROOT}/big", 9 << 20)
    assert ended == [InternalError]
    assert store.list(ROOT) == []
    assert issubclass(GenericError, BaseError)
