# SPDX-License-Identifier: Apache-2.0
"""HDFS: the shared promises on a real cluster; what a scripted NameNode answers."""

import http.server
import json
import pathlib
import pickle
import re
import threading
import uuid

import pytest

from storage.catalog.catalog import Catalog
from storage.errors import (
    InvalidOptionError,
    InvalidRequestError,
    StorageUnavailableError,
    UnsupportedFeatureError,
)
from storage.format.metadata.schema import new_schema
from storage.format.types.types import parse_type
from storage.io.hdfs import HdfsFileIO, cluster_of
from storage.io.resolve import resolve_file_io
from tests.e2e.availability import had
from tests.e2e.hdfs_cluster import hdfs_cluster
from tests.free_ports import free_port
from tests.table_kit import rows_of, write
from tests.unit.storage.file_io_contract import FileIOContract

ADDRESS = {"hdfs.webhdfs.address": "http://127.0.0.1:1"}


# ---- a real cluster


@pytest.fixture(scope="module")
def cluster():
    with had(hdfs_cluster(), "HDFS") as found:
        yield found


@pytest.mark.full
class TestHdfs(FileIOContract):
    @pytest.fixture
    def store(self, cluster):
        return resolve_file_io(f"{cluster.url}/w", cluster.options)[0]

    @pytest.fixture
    def root(self, cluster):
        return f"{cluster.url}/w/{uuid.uuid4().hex}"

    def test_a_pickled_store_reads_what_the_first_one_wrote(self, store, root):
        store.write_bytes(f"{root}/f", b"1")
        assert pickle.loads(pickle.dumps(store)).read_bytes(f"{root}/f") == b"1"

    def test_directories_are_renamed_whole_or_not_at_all(self, store, root):
        store.write_bytes(f"{root}/a/b/c", b"1")
        store.write_bytes(f"{root}/taken/x", b"2")
        with pytest.raises(FileExistsError):
            store.rename_directory(f"{root}/a", f"{root}/taken")
        store.rename_directory(f"{root}/a", f"{root}/new/parent/z")
        assert [status.path for status in store.walk(root)] == [
            f"{root}/new/parent/z/b/c",
            f"{root}/taken/x",
        ]
        with pytest.raises(FileNotFoundError):
            store.rename_directory(f"{root}/a", f"{root}/again")

    def test_prune_removes_directories_without_files(self, store, root):
        store.write_bytes(f"{root}/a/b/c", b"1")
        store.write_bytes(f"{root}/d/e/f", b"1")
        store.delete(f"{root}/a/b/c")
        store.prune(f"{root}/a")
        assert [status.name for status in store.list(root)] == ["d"]
        store.prune(root)
        assert store.read_bytes(f"{root}/d/e/f") == b"1"

    def test_a_user_without_rights_is_refused(self, cluster, store, root):
        store.write_bytes(f"{root}/f", b"1")
        other = HdfsFileIO(cluster.url, {**cluster.options, "hdfs.webhdfs.user": "mallory"})
        with pytest.raises(PermissionError, match=r"hdfs\.webhdfs\.user"):
            other.write_bytes(f"{root}/g", b"1")
        with pytest.raises(PermissionError):
            other.delete(f"{root}/f")

    def test_an_address_that_does_not_answer_is_passed_over(self, cluster, root):
        dead = f"http://127.0.0.1:{free_port()}"
        options = {**cluster.options, "hdfs.webhdfs.address": f"{dead},{cluster.address}"}
        file_io = HdfsFileIO(cluster.url, options)
        assert file_io.put_if_absent(f"{root}/f", b"1")
        assert file_io.read_bytes(f"{root}/f") == b"1"

    def test_the_address_is_read_from_the_hadoop_configuration(self, cluster, root, tmp_path):
        (tmp_path / "hdfs-site.xml").write_text(
            "<configuration><property><name>dfs.namenode.http-address</name>"
            f"<value>127.0.0.1:{cluster.http_port}</value></property></configuration>"
        )
        file_io = HdfsFileIO(cluster.url, {"hadoop-conf-dir": str(tmp_path)})
        assert file_io.list(f"{root}/none") == []

    def test_a_table_lives_there(self, cluster, root):
        catalog = Catalog.open(root, cluster.options)
        schema = new_schema(
            [("k", parse_type("INT")), ("v", parse_type("INT"))],
            primary_keys=["k"],
            options={"bucket": "1"},
        )
        table = catalog.create_table("db.t", schema)
        write(table, 1, [("+I", 1, 10)])
        write(pickle.loads(pickle.dumps(table)), 2, [("+U", 1, 11), ("+I", 2, 20)])
        catalog.rename_table("db.t", "db.u")
        assert rows_of(Catalog.open(root, cluster.options).table("db.u")) == [(1, 11), (2, 20)]
        catalog.drop_table("db.u")
        assert catalog.list_tables("db") == []

    def test_the_guide(self, cluster, root, capsys):
        page = pathlib.Path(__file__).parents[5] / "docs" / "guides" / "hive.md"
        example = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)[2]
        names = {"WAREHOUSE": root, "ADDRESS": cluster.address, "USER": cluster.user}
        Catalog.open(root, cluster.options).create_database("shop")
        exec(example, names)
        assert capsys.readouterr().out == "['shop']\n"


# ---- a scripted NameNode


@pytest.fixture
def namenode():
    """A server that gives scripted answers by operation, last one for ever; notes requests."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def answer(self):
            operation = self.path.partition("op=")[2].partition("&")[0]
            server.asked.append((operation, self.path))
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            answers = server.answers[operation]
            answer = answers.pop(0) if len(answers) > 1 else answers[0]
            if answer is None:
                self.close_connection = True
                return
            status, body = answer
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_PUT = do_DELETE = answer

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.asked, server.answers = [], {}
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def refusal(exception, message="why"):
    return {"RemoteException": {"exception": exception, "message": message}}


def store_of(*servers, **options):
    addresses = ",".join(f"http://127.0.0.1:{server.server_port}" for server in servers)
    return HdfsFileIO(
        "hdfs://nn", {"hdfs.webhdfs.address": addresses, "store.max-retries": "1", **options}
    )


MISSING = (404, refusal("FileNotFoundException"))
TAKEN = (403, refusal("FileAlreadyExistsException"))


def test_a_rename_whose_answer_was_lost_is_known_by_its_bytes(namenode):
    namenode.answers = {
        "CREATE": [(201, b"")],
        "RENAME": [None, MISSING],
        "OPEN": [(200, b"mine")],
        "DELETE": [(200, {"boolean": False})],
    }
    assert store_of(namenode).put_if_absent("hdfs://nn/t/snapshot-1", b"mine") is True
    assert [operation for operation, _ in namenode.asked].count("RENAME") == 2
    namenode.answers["RENAME"] = [None, MISSING]
    with pytest.raises(StorageUnavailableError, match="disappeared"):
        store_of(namenode).put_if_absent("hdfs://nn/t/snapshot-1", b"other")


def test_a_name_that_is_taken_leaves_no_temporary_file(namenode):
    namenode.answers = {
        "CREATE": [(201, b"")],
        "RENAME": [TAKEN],
        "DELETE": [(200, {"boolean": True})],
    }
    assert store_of(namenode).put_if_absent("hdfs://nn/t/snapshot-1", b"mine") is False
    create, rename, delete = (path.partition("?")[0] for _, path in namenode.asked)
    assert create == rename == delete
    assert create.startswith("/webhdfs/v1/t/.snapshot-1.")


def test_a_gateway_without_options_of_rename_answers_false(namenode):
    namenode.answers = {
        "CREATE": [(201, b"")],
        "RENAME": [(200, {"boolean": False}), (200, {"boolean": True})],
        "GETFILESTATUS": [
            (200, {"FileStatus": {"length": 1, "type": "FILE", "modificationTime": 1}})
        ],
        "DELETE": [(200, {"boolean": True})],
    }
    store = store_of(namenode)
    store.overwrite_bytes("hdfs://nn/t/LATEST", b"2")
    assert [operation for operation, _ in namenode.asked] == [
        *("CREATE", "RENAME", "GETFILESTATUS", "DELETE", "RENAME")
    ]
    namenode.answers["RENAME"] = [(200, {"boolean": False})]
    assert store.put_if_absent("hdfs://nn/t/snapshot-1", b"1") is False


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ((404, refusal("FileNotFoundException")), FileNotFoundError),
        ((403, refusal("AccessControlException")), PermissionError),
        ((403, refusal("InvalidToken")), PermissionError),
        ((401, b"<html>"), PermissionError),
        ((403, refusal("SafeModeException")), StorageUnavailableError),
        ((500, refusal("RuntimeException")), StorageUnavailableError),
        ((403, refusal("IOException", "could only be written to 0")), StorageUnavailableError),
        ((400, refusal("IllegalArgumentException")), InvalidRequestError),
        ((502, b"bad gateway"), StorageUnavailableError),
        (None, StorageUnavailableError),
    ],
)
def test_what_answers_mean(namenode, answer, error):
    namenode.answers = {"OPEN": [answer]}
    with pytest.raises(error):
        store_of(namenode).read_bytes("hdfs://nn/f")
    assert len(namenode.asked) == (2 if error is StorageUnavailableError else 1)


def test_a_standby_namenode_is_passed_over_and_remembered(namenode):
    namenode.answers = {"OPEN": [(403, refusal("StandbyException")), (200, b"1")]}
    store = store_of(namenode, namenode)
    assert store.read_bytes("hdfs://nn/f") == b"1"
    assert store.read_bytes("hdfs://nn/f") == b"1"
    assert len(namenode.asked) == 3


def test_a_delegation_token_stands_for_its_user(namenode):
    namenode.answers = {"OPEN": [(200, b"1")]}
    store = store_of(namenode, **{"hdfs.webhdfs.delegation-token": "a/b+c"})
    assert pickle.loads(pickle.dumps(store)).read_bytes("hdfs://nn/f") == b"1"
    assert namenode.asked[0][1] == "/webhdfs/v1/f?op=OPEN&delegation=a%2Fb%2Bc"
    assert "a/b+c" not in repr(store)


def test_nothing_written_is_left_when_the_writer_fails(namenode):
    def fail():
        with store_of(namenode).open_output("hdfs://nn/f") as sink:
            sink.write(b"1")
            raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        fail()
    assert namenode.asked == []


# ---- locations and options


def test_an_hdfs_warehouse_needs_an_address():
    with pytest.raises(InvalidOptionError) as caught:
        resolve_file_io("hdfs://nn:8020/w")
    assert "http://namenode:9870" in caught.value.hint
    file_io, root = resolve_file_io("hdfs://nn:8020/w/", ADDRESS)
    assert isinstance(file_io, HdfsFileIO)
    assert root == "hdfs://nn:8020/w"


@pytest.mark.parametrize("location", ["hdfs://nn:8020", "hdfs://nn:8020/", "hdfs:/w"])
def test_locations_that_name_no_directory(location):
    with pytest.raises(InvalidRequestError, match="must name a directory"):
        resolve_file_io(location, ADDRESS)


def test_viewfs_is_refused():
    with pytest.raises(UnsupportedFeatureError) as caught:
        resolve_file_io("viewfs://c/w", ADDRESS)
    assert "hdfs://" in caught.value.hint


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"hdfs.webhdfs.adress": "http://a:1"}, "hdfs.webhdfs.address"),
        ({"hdfs.webhdfs.address": "nn:9870"}, "http://namenode:9870"),
        ({"s3.endpoint": "http://a", **ADDRESS}, "hdfs.webhdfs"),
        (
            {**ADDRESS, "hdfs.webhdfs.user": "a", "hdfs.webhdfs.delegation-token": "t"},
            "hdfs.webhdfs.user",
        ),
    ],
)
def test_options_that_are_refused(options, word):
    with pytest.raises(InvalidOptionError) as caught:
        resolve_file_io("hdfs://nn/w", options)
    assert word in str(caught.value)


def test_who_asks(monkeypatch):
    monkeypatch.setenv("HADOOP_USER_NAME", "etl")
    assert cluster_of("nn", ADDRESS).user == "etl"
    assert cluster_of("nn", {**ADDRESS, "hdfs.webhdfs.user": "me"}).user == "me"
    with_token = cluster_of("nn", {**ADDRESS, "hdfs.webhdfs.delegation-token": "abc"})
    assert (with_token.user, with_token.token) == ("", "abc")
    assert "abc" not in repr(with_token)


def test_addresses_of_a_highly_available_service(tmp_path):
    rows = {
        "dfs.ha.namenodes.big": "a, b",
        "dfs.namenode.http-address.big.a": "one:9870",
        "dfs.namenode.http-address.big.b": "two:9870",
        "dfs.namenode.https-address.big.a": "one:9871",
        "dfs.namenode.https-address.big.b": "two:9871",
    }

    def conf(**more):
        body = "".join(
            f"<property><name>{key}</name><value>{value}</value></property>"
            for key, value in {**rows, **more}.items()
        )
        (tmp_path / "hdfs-site.xml").write_text(f"<configuration>{body}</configuration>")
        return cluster_of("big", {"hadoop-conf-dir": str(tmp_path)}).addresses

    assert conf() == ("http://one:9870", "http://two:9870")
    assert conf(**{"dfs.http.policy": "HTTPS_ONLY"}) == ("https://one:9871", "https://two:9871")
    with pytest.raises(InvalidOptionError, match=r"does not name an address"):
        cluster_of("other", {"hadoop-conf-dir": str(tmp_path)})
    (tmp_path / "hdfs-site.xml").write_text("<configuration>")
    with pytest.raises(InvalidOptionError, match="not XML"):
        cluster_of("big", {"hadoop-conf-dir": str(tmp_path)})
