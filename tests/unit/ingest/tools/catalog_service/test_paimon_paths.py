# SPDX-License-Identifier: Apache-2.0
"""Every path of Paimon's REST protocol: what it answers, and with which errors."""

import concurrent.futures

import pytest

from storage.format.metadata.schema import new_schema
from storage.format.types.types import parse_type
from tests.catalog_service import catalog_service
from tests.table_kit import rows_of, write
from tests.unit.ingest.tools.catalog_service.asking import Paimon, ask

INT, STRING = parse_type("INT"), parse_type("STRING")
T = "/databases/db/tables/t"
FIELDS = [
    {"id": 0, "name": "k", "type": "INT NOT NULL"},
    {"id": 1, "name": "v", "type": "INT", "description": "a number"},
    {
        "id": 2,
        "name": "r",
        "type": {"type": "ROW", "fields": [{"id": 3, "name": "x", "type": "INT"}]},
    },
]


def new(name, database="db", **options):
    schema = {"fields": FIELDS, "primaryKeys": ["k"], "partitionKeys": [], "comment": "what for"}
    options = {"bucket": "1", **options}
    return {
        "identifier": {"database": database, "object": name},
        "schema": {**schema, "options": options},
    }


@pytest.fixture
def served(tmp_path):
    options = {"metastore": "jdbc", "uri": f"jdbc:sqlite:{tmp_path}/served.db"}
    with catalog_service(str(tmp_path / "w"), options) as found:
        yield found


@pytest.fixture
def api(served):
    paimon = Paimon(served)
    paimon.post("/databases", {"name": "db", "options": {"owner": "x", "comment": "c"}})
    return paimon


@pytest.fixture
def table(api, served):
    """Three snapshots of a partitioned table `db.t`."""
    catalog = served.service.catalog
    schema = new_schema(
        [("k", INT), ("dt", STRING)],
        primary_keys=["k", "dt"],
        partition_keys=["dt"],
        options={"bucket": "1"},
    )
    made = catalog.create_table("db.t", schema)
    for number, dt in enumerate(("a", "b/ ä", "a"), 1):
        write(made, number, [("+I", number, dt)], compaction=False)
    return made


# ---- config, databases


def test_config(served):
    document = ask(served, "GET", "/paimon/v1/config?warehouse=lake").document
    assert document == {"defaults": {}, "overrides": {"prefix": "lakeward"}}


def test_databases(api):
    found = api.get("/databases/db")
    assert (found["name"], found["options"]) == ("db", {"owner": "x", "comment": "c"})
    assert found["location"].endswith("/db.db")
    changes = {"removals": ["owner", "none"], "updates": {"a": "1"}}
    answered = api.post("/databases/db", changes)
    assert answered == {"removed": ["owner"], "updated": ["a"], "missing": ["none"]}
    assert api.get("/databases/db")["options"] == {"a": "1", "comment": "c"}
    assert api.refusal("POST", "/databases", {"name": "db"}) == (409, "DATABASE", "db")
    assert api.refusal("POST", "/databases", {"name": "a/b"})[0] == 400
    for method, body in (("GET", None), ("POST", changes), ("DELETE", None)):
        assert api.refusal(method, "/databases/none", body) == (404, "DATABASE", "none")
    api.post("/databases/db/tables", new("t"))
    assert api("DELETE", "/databases/db").status == 200
    assert api.get("/databases")["databases"] == []


def test_pages_and_patterns(api):
    for number in range(5):
        api.post("/databases", {"name": f"a{number}"})
        api.post("/databases/db/tables", new(f"t_{number}"))
    first = api.get("/databases?maxResults=4")
    assert first == {"databases": ["a0", "a1", "a2", "a3"], "nextPageToken": "a3"}
    second = api.get(f"/databases?maxResults=4&pageToken={first['nextPageToken']}")
    assert second == {"databases": ["a4", "db"], "nextPageToken": None}
    assert api.get("/databases?maxResults=6")["nextPageToken"] is None
    assert api.get("/databases?databaseNamePattern=a%25&maxResults=0")["databases"] == [
        f"a{number}" for number in range(5)
    ]
    tables = "/databases/db/tables"
    assert api.get(f"{tables}?tableNamePattern=t%5C_1")["tables"] == ["t_1"]
    assert api.get(f"{tables}?tableNamePattern=t")["tables"] == []
    assert api.get(f"{tables}?tableType=format-table")["tables"] == []
    assert len(api.get(f"{tables}?tableType=table")["tables"]) == 5
    details = api.get("/databases/db/table-details?maxResults=2&pageToken=t_2")
    assert [one["name"] for one in details["tableDetails"]] == ["t_3", "t_4"]
    everywhere = api.get("/tables?databaseNamePattern=d%25&tableNamePattern=%25_4")
    assert everywhere["tables"] == [{"database": "db", "object": "t_4"}]
    assert api.refusal("GET", "/databases?maxResults=many")[0] == 400
    for path in ("tables", "table-details", "views", "view-details", "functions"):
        assert api.refusal("GET", f"/databases/none/{path}") == (404, "DATABASE", "none")


# ---- tables


def test_a_table(api):
    api.post("/databases/db/tables", new("t", **{"file.format": "orc"}))
    found = api.get(T)
    assert (found["name"], found["database"], found["schemaId"]) == ("t", "db", 0)
    assert found["path"].endswith("/db.db/t")
    assert found["isExternal"] is False
    assert found["schema"]["fields"] == FIELDS
    assert found["schema"]["options"] == {"bucket": "1", "file.format": "orc"}
    assert (found["schema"]["primaryKeys"], found["schema"]["comment"]) == (["k"], "what for")
    assert api.get(f"/tables/id/{found['id']}") == found
    assert api.refusal("GET", "/tables/id/none") == (404, "TABLE", "none")
    tables = "/databases/db/tables"
    assert api.refusal("POST", tables, new("t")) == (409, "TABLE", "t")
    assert api.refusal("POST", tables, new("u", bucket="many"))[0] == 400
    assert api.refusal("POST", tables, new("u", database="other"))[0] == 400
    missing = api.refusal("POST", "/databases/none/tables", new("t", database="none"))
    assert missing == (404, "DATABASE", "none")
    assert api("DELETE", T).status == 200
    for method, body in (("GET", None), ("DELETE", None), ("POST", {"changes": []})):
        assert api.refusal(method, T, body) == (404, "TABLE", "t")


def test_another_table_of_the_same_name_has_another_id(api):
    ids = set()
    for _ in range(3):
        api.post("/databases/db/tables", new("t"))
        ids.add(api.get(T)["id"])
        api("DELETE", T)
    assert len(ids) == 3


def test_schema_changes(api):
    api.post("/databases/db/tables", new("t"))

    def column(action, *names, **more):
        return {"action": action, "fieldNames": list(names), **more}

    api.post(
        T,
        {
            "changes": [
                {"action": "setOption", "key": "write-only", "value": "true"},
                {"action": "updateComment", "comment": "else"},
                column("addColumn", "a", dataType="INT", move={"fieldName": "a", "type": "FIRST"}),
                column("addColumn", "r", "y", dataType="STRING", comment="inner", move=None),
                column("renameColumn", "v", newName="w"),
                column("updateColumnType", "w", newDataType="BIGINT", keepNullability=True),
                column("updateColumnComment", "w", newComment=None),
                column("updateColumnDefaultValue", "w", newDefaultValue="5"),
                {
                    "action": "updateColumnPosition",
                    "move": {"fieldName": "w", "referenceFieldName": "k", "type": "BEFORE"},
                },
            ]
        },
    )
    found = api.get(T)["schema"]
    assert [field["name"] for field in found["fields"]] == ["a", "w", "k", "r"]
    assert found["fields"][1] == {"id": 1, "name": "w", "type": "BIGINT", "defaultValue": "5"}
    assert [field["name"] for field in found["fields"][3]["type"]["fields"]] == ["x", "y"]
    assert (found["comment"], found["options"]["write-only"]) == ("else", "true")
    more = [column("dropColumn", "a"), {"action": "removeOption", "key": "write-only"}]
    unbucketed = {"action": "setOption", "key": "bucket", "value": "-1"}
    api.post(T, {"changes": [*more, unbucketed, {"action": "dropPrimaryKey"}]})
    found = api.get(T)["schema"]
    assert found["primaryKeys"] == []
    assert found["options"] == {"bucket": "-1"}
    taken = column("addColumn", "w", dataType="INT")
    for refused, expected in (
        (taken, (409, "COLUMN", "w")),
        (column("dropColumn", "none"), (404, "COLUMN", "none")),
        (column("renameColumn", "r", "none", newName="z"), (404, "COLUMN", "r.none")),
        (column("updateColumnType", "w", newDataType="BOOLEAN"), (400, None, None)),
        (column("addColumn", "z", dataType="NOTHING"), (400, None, None)),
        (column("addColumn", "z"), (400, None, None)),
        ({"action": "updateColumnPosition", "move": {"fieldName": "w", "type": "UP"}}, (400,)),
        ({"action": "explode"}, (501, None, None)),
    ):
        assert api.refusal("POST", T, {"changes": [refused]})[: len(expected)] == expected, refused
    assert api.get(T)["schema"] == found


def test_renaming(api):
    for name in ("t", "taken"):
        api.post("/databases/db/tables", new(name))
    id_ = api.get(T)["id"]

    def body(old, new_, database="db"):
        destination = {"database": database, "object": new_}
        return {"source": {"database": "db", "object": old}, "destination": destination}

    assert api.refusal("POST", "/tables/rename", body("t", "taken")) == (409, "TABLE", "taken")
    assert api.refusal("POST", "/tables/rename", body("no", "x")) == (404, "TABLE", "no")
    missing = api.refusal("POST", "/tables/rename", body("t", "u", "none"))
    assert missing == (404, "DATABASE", "none")
    api.post("/tables/rename", body("t", "u u"))
    assert api.get("/databases/db/tables")["tables"] == ["taken", "u u"]
    assert api.get("/databases/db/tables/u+u")["id"] == id_
    assert api.get("/databases/db/tables/u%20u")["id"] == id_


def test_registering(api, served, table):
    catalog = served.service.catalog
    identifier = {"database": "db", "object": "t"}
    register = "/databases/db/register"
    path = table.layout.root
    assert api.refusal("POST", register, {"identifier": identifier, "path": path})[0] == 409
    elsewhere = {"identifier": {**identifier, "object": "u"}, "path": "/elsewhere"}
    assert api.refusal("POST", register, elsewhere)[0] == 501
    catalog._unregister("db.t")
    assert api.get("/databases/db/tables")["tables"] == []
    api.post(register, {"identifier": identifier, "path": path})
    assert api.get(f"{T}/snapshot")["snapshot"]["snapshot"]["id"] == 3


# ---- snapshots and commits


def test_snapshots(api, table):
    newest = api.get(f"{T}/snapshot")["snapshot"]
    assert newest["snapshot"] == dict(table.latest_snapshot().members())
    assert newest["recordCount"] == 3
    every = api.get(f"{T}/snapshots")["snapshots"]
    assert [one["id"] for one in every] == [1, 2, 3]
    page = api.get(f"{T}/snapshots?maxResults=2")
    assert [one["id"] for one in page["snapshots"]] == [1, 2]
    rest = api.get(f"{T}/snapshots?maxResults=2&pageToken={page['nextPageToken']}")
    assert [one["id"] for one in rest["snapshots"]] == [3]
    table.create_tag("now", 2)
    for version, id_ in (("EARLIEST", 1), ("LATEST", 3), ("2", 2), ("now", 2)):
        assert api.get(f"{T}/snapshots/{version}")["snapshot"]["id"] == id_
    for version in ("9", "none"):
        assert api.refusal("GET", f"{T}/snapshots/{version}") == (404, "SNAPSHOT", version)
    assert api.refusal("GET", "/databases/db/tables/no/snapshot") == (404, "TABLE", "no")
    api.post("/databases/db/tables", new("empty"))
    empty = "/databases/db/tables/empty"
    assert api.refusal("GET", f"{empty}/snapshot") == (404, "SNAPSHOT", "LATEST")
    assert api.get(f"{empty}/snapshots")["snapshots"] == []
    assert api.refusal("GET", f"{empty}/snapshots/EARLIEST")[0] == 404


@pytest.fixture
def commit(api, table):
    """The body of a commit of snapshot 4 on top of 3, whose files are there."""
    base = table.latest_snapshot()
    members = {**base.members(), "id": 4, "uuid": "of-4"}
    id_ = api.get(T)["id"]
    return {"tableId": id_, "baseSnapshotUuid": base.uuid, "snapshot": members, "statistics": []}


def test_a_commit_is_published_once(api, table, commit):
    assert api.post(f"{T}/commit", commit) == {"success": True}
    assert table.latest_snapshot().uuid == "of-4"
    assert api.post(f"{T}/commit", commit) == {"success": True}, "the answer was lost"
    other = {**commit, "snapshot": {**commit["snapshot"], "uuid": "another"}}
    assert api.post(f"{T}/commit", other) == {"success": False}
    assert table.snapshots.ids() == [1, 2, 3, 4]
    assert table.latest_snapshot().uuid == "of-4"


def test_a_commit_is_repeated_after_others(api, table, commit):
    api.post(f"{T}/commit", commit)
    write(table, 5, [("+I", 9, "a")], compaction=False)
    assert api.post(f"{T}/commit", commit) == {"success": True}
    assert table.latest_snapshot().id == 5


def test_commits_that_do_not_follow(api, table, commit):
    for changed in (
        {"baseSnapshotUuid": "another"},
        {"baseSnapshotUuid": None},
        {"snapshot": {**commit["snapshot"], "id": 5}},
        {"snapshot": {**commit["snapshot"], "id": 3}},
        {"snapshot": {**commit["snapshot"], "id": 1}},
    ):
        assert api.post(f"{T}/commit", {**commit, **changed}) == {"success": False}, changed
    assert table.latest_snapshot().id == 3
    older = {key: value for key, value in commit.items() if key != "baseSnapshotUuid"}
    assert api.post(f"{T}/commit", older) == {"success": True}, "older clients name no base"


def test_commits_that_are_refused(api, table, commit):
    wrong = api.refusal("POST", f"{T}/commit", {**commit, "tableId": "another"})
    assert wrong == (404, "TABLE", "t")
    for changed in (
        {"tableId": None},
        {"snapshot": None},
        {"snapshot": {}},
        {"snapshot": {**commit["snapshot"], "schemaId": 7}},
        {"snapshot": {**commit["snapshot"], "deltaManifestList": "manifest-list-none"}},
        {"snapshot": {**commit["snapshot"], "indexManifest": "index-manifest-none"}},
        {"snapshot": {**commit["snapshot"], "commitKind": "EXPLODE"}},
    ):
        assert api.refusal("POST", f"{T}/commit", {**commit, **changed})[0] == 400, changed
    assert table.latest_snapshot().id == 3


def test_a_commit_to_a_table_that_was_made_anew(api, table, commit):
    api("DELETE", T)
    api.post("/databases/db/tables", new("t"))
    assert api.refusal("POST", f"{T}/commit", commit) == (404, "TABLE", "t")


def test_of_commits_at_once_one_wins(api, table, commit):
    def one(number):
        return api.post(
            f"{T}/commit", {**commit, "snapshot": {**commit["snapshot"], "uuid": str(number)}}
        )

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        found = [one["success"] for one in pool.map(one, range(16))]
    assert found.count(True) == 1
    assert table.latest_snapshot().uuid == str(found.index(True))


def test_rolling_back(api, table):
    table.create_tag("second", 2)
    wrong = {"instant": {"type": "snapshot", "snapshotId": 1}, "fromSnapshot": 2}
    assert api.refusal("POST", f"{T}/rollback", wrong)[0] == 400
    for instant, expected in (
        ({"type": "snapshot", "snapshotId": 9}, (404, "SNAPSHOT", "9")),
        ({"type": "tag", "tagName": "no"}, (404, "TAG", "no")),
        ({"type": "snapshot"}, (400, None, None)),
    ):
        assert api.refusal("POST", f"{T}/rollback", {"instant": instant}) == expected
    api.post(f"{T}/rollback", {"instant": {"type": "tag", "tagName": "second"}})
    assert rows_of(table) == [(1, "a"), (2, "b/ ä")]
    back = {"instant": {"type": "snapshot", "snapshotId": 1}, "fromSnapshot": 2}
    api.post(f"{T}/rollback", back)
    assert rows_of(table) == [(1, "a")]
    assert api.refusal("POST", f"{T}/rollback-schema", {"schemaId": 0})[0] == 501


# ---- partitions


def test_partitions(api, table):
    found = api.get(f"{T}/partitions")["partitions"]
    assert [(one["spec"], one["recordCount"], one["fileCount"]) for one in found] == [
        ({"dt": "a"}, 2, 2),
        ({"dt": "b/ ä"}, 1, 1),
    ]
    assert all(one["fileSizeInBytes"] > 0 and one["totalBuckets"] == 1 for one in found)
    first = api.get(f"{T}/partitions?maxResults=1")
    assert first["partitions"] == found[:1]
    rest = api.get(f"{T}/partitions?maxResults=1&pageToken={first['nextPageToken']}")
    assert rest["partitions"] == found[1:]
    assert api.get(f"{T}/partitions?partitionNamePattern=dt%3Da%25")["partitions"] == found[:1]
    names = {"specs": [{"dt": "b/ ä"}, {"dt": "none"}]}
    assert api.post(f"{T}/partitions/list-by-names", names)["partitions"] == found[1:]
    filtered = {"filter": "{}", "maxResults": 1}
    page = api.post(f"{T}/partitions/list-by-filter", filtered)
    assert page["partitions"] == found[:1]
    assert page["nextPageToken"] == "dt=a"
    assert not any(one["done"] for one in found)
    api.post(f"{T}/partitions/mark", {"specs": [{"dt": "a"}]})
    marked = api.get(f"{T}/partitions")["partitions"]
    assert [one["done"] for one in marked] == [True, False]
    assert api.refusal("POST", f"{T}/partitions/mark", {"specs": [{"x": "a"}]})[0] == 400
    assert api.refusal("POST", f"{T}/partitions/list-by-names", {"specs": [1]})[0] == 400
    for path in ("", "/drop"):
        body = {"partitionSpecs": [{"dt": "z"}]}
        assert api.refusal("POST", f"{T}/partitions{path}", body)[0] == 501


# ---- branches, tags, consumers


def test_branches(api, served, table):
    table.create_tag("first", 1)
    api.post(f"{T}/branches", {"branch": "dev", "fromTag": "first"})
    api.post(f"{T}/branches", {"branch": "empty", "fromTag": None})
    assert api.get(f"{T}/branches")["branches"] == ["dev", "empty"]
    assert api.get(f"{T}%24branch_dev/snapshot")["snapshot"]["snapshot"]["id"] == 1
    assert api.get(f"{T}$branch_dev")["name"] == "t$branch_dev"
    assert api.get(f"{T}$branch_dev")["id"] == api.get(T)["id"]
    taken = api.refusal("POST", f"{T}/branches", {"branch": "dev"})
    assert taken == (409, "BRANCH", "dev")
    untagged = api.refusal("POST", f"{T}/branches", {"branch": "x", "fromTag": "no"})
    assert untagged == (404, "TAG", "no")
    assert api.refusal("POST", f"{T}/branches", {"branch": "12"})[0] == 400
    renamed = api.refusal("POST", f"{T}/branches/dev/rename", {"toBranch": "empty"})
    assert renamed == (409, "BRANCH", "empty")
    api.post(f"{T}/branches/dev/rename", {"toBranch": "next"})
    write(served.service.catalog.table("db.t$branch_next"), 9, [("+I", 7, "z")])
    api.post(f"{T}/branches/next/forward")
    assert rows_of(served.service.catalog.table("db.t")) == [(1, "a"), (7, "z")]
    assert api("DELETE", f"{T}/branches/next").status == 200
    for method, path in (
        ("DELETE", f"{T}/branches/next"),
        ("POST", f"{T}/branches/next/forward"),
    ):
        assert api.refusal(method, path, {}) == (404, "BRANCH", "next")
    assert api.refusal("GET", f"{T}$branch_next") == (404, "TABLE", "t$branch_next")


def test_tags(api, table):
    api.post(f"{T}/tags", {"tagName": "a1", "snapshotId": 2, "timeRetained": "1d"})
    api.post(f"{T}/tags", {"tagName": "b1", "snapshotId": None})
    found = api.get(f"{T}/tags/a1")
    assert (found["tagName"], found["snapshot"]["id"]) == ("a1", 2)
    assert found["tagTimeRetained"] == "PT86400S"
    assert abs(found["tagCreateTime"] - table.latest_snapshot().time_ms) < 600_000
    assert api.get(f"{T}/tags/b1")["tagCreateTime"] is None
    assert api.get(f"{T}/tags")["tags"] == ["a1", "b1"]
    assert api.get(f"{T}/tags?tagNamePrefix=a")["tags"] == ["a1"]
    assert api.get(f"{T}/tags?maxResults=1") == {"tags": ["a1"], "nextPageToken": "a1"}
    assert api.refusal("POST", f"{T}/tags", {"tagName": "a1"}) == (409, "TAG", "a1")
    api.post(f"{T}/tags", {"tagName": "a1", "ignoreIfExists": True})
    missing = api.refusal("POST", f"{T}/tags", {"tagName": "c", "snapshotId": 9})
    assert missing == (404, "SNAPSHOT", "9")
    assert api.refusal("POST", f"{T}/tags", {"tagName": "c", "timeRetained": "long"})[0] == 400
    assert api("DELETE", f"{T}/tags/a1").status == 200
    for method in ("GET", "DELETE"):
        assert api.refusal(method, f"{T}/tags/a1") == (404, "TAG", "a1")


def test_consumers(api, table):
    api.post(f"{T}/consumers/reset", {"consumerId": "c", "nextSnapshotId": 2})
    expected = {"consumers": [{"consumerId": "c", "nextSnapshot": 2}], "nextPageToken": None}
    assert api.get(f"{T}/consumers") == expected
    api.post(f"{T}/consumers/reset", {"consumerId": "c"})
    assert api.get(f"{T}/consumers")["consumers"] == []


# ---- views, functions, credentials


def test_views(api):
    fields = [{"id": 0, "name": "k", "type": "INT"}]
    schema = {"fields": fields, "query": "select 1", "dialects": {"spark": "s"}, "options": {}}
    identifier = {"database": "db", "object": "v"}
    views, one = "/databases/db/views", "/databases/db/views/v"
    api.post(views, {"identifier": identifier, "schema": schema})
    found = api.get(one)
    assert (found["name"], found["schema"]) == ("v", schema)
    assert api.get(views)["views"] == ["v"]
    assert api.get("/databases/db/view-details")["viewDetails"] == [found]
    assert api.get("/views")["views"] == [identifier]
    assert api.refusal("POST", views, {"identifier": identifier, "schema": schema}) == (
        409,
        "VIEW",
        "v",
    )
    api.post(
        one,
        {
            "changes": [
                {"action": "setOption", "key": "a", "value": "1"},
                {"action": "updateComment", "comment": "c"},
                {"action": "addDialect", "dialect": "flink", "query": "f"},
                {"action": "updateDialect", "dialect": "spark", "query": "t"},
            ]
        },
    )
    changed = api.get(one)["schema"]
    assert changed["dialects"] == {"spark": "t", "flink": "f"}
    assert (changed["options"], changed["comment"]) == ({"a": "1"}, "c")
    for change, expected in (
        ({"action": "addDialect", "dialect": "spark", "query": "x"}, (409, "DIALECT", "spark")),
        ({"action": "dropDialect", "dialect": "trino"}, (404, "DIALECT", "trino")),
        ({"action": "setOption", "key": "a"}, (400, None, None)),
        ({"action": "explode"}, (501, None, None)),
    ):
        assert api.refusal("POST", one, {"changes": [change]}) == expected
    renaming = {"source": identifier, "destination": {**identifier, "object": "w"}}
    api.post("/views/rename", renaming)
    assert api.refusal("POST", "/views/rename", renaming) == (404, "VIEW", "v")
    assert api("DELETE", "/databases/db/views/w").status == 200
    for method in ("GET", "DELETE"):
        assert api.refusal(method, one) == (404, "VIEW", "v")


def test_functions_are_none(api):
    functions = "/databases/db/functions"
    assert api.get(functions) == {"functions": [], "nextPageToken": None}
    assert api.get("/functions")["functions"] == []
    assert api.get("/databases/db/function-details")["functionDetails"] == []
    assert api.refusal("GET", f"{functions}/f") == (404, "FUNCTION", "f")
    assert api.refusal("POST", functions, {"name": "f"})[0] == 501
    assert api.refusal("DELETE", f"{functions}/f")[0] == 501


def test_credentials_are_handed_out_where_configured(api, served, table):
    assert api.refusal("GET", f"{T}/token") == (403, "TABLE", "t")
    assert api.post(f"{T}/auth", {"select": None}) == {"filter": [], "columnMasking": {}}
    catalog = served.service.catalog
    catalog.options = {**catalog.options, "s3.access-key": "key", "jdbc.password": "never"}
    assert "data-token.enabled" not in ask(served, "GET", "/paimon/v1/config").document["overrides"]
    object.__setattr__(served.service, "hand_out_credentials", True)
    handed = api.get(f"{T}/token")
    assert handed["token"] == {"s3.access-key": "key"}
    assert handed["expiresAtMillis"] > catalog.clock.now_ms() + 3_600_000
    assert api.refusal("GET", "/databases/db/tables/no/token") == (404, "TABLE", "no")
