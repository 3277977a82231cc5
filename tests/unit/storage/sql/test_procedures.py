# SPDX-License-Identifier: Apache-2.0
import re

import pytest

from storage.catalog.catalog import FileSystemCatalog
from storage.errors import NotFoundError, UnsupportedFeatureError
from storage.sql.dialect import statements
from storage.sql.errors import SqlError
from storage.sql.procedures import (
    PAGE,
    PROCEDURES,
    REFUSED,
    describe_procedure,
    find_procedure,
    procedures_page,
)
from storage.sql.session import SqlSession
from tests.table_kit import make_table, rows_of, write
from tests.unit.storage.newest_files import newest_entries

# the names in the menus of Paimon's pages "Procedures" of Flink and of Spark
OF_PAIMON = """
alter_column_default_value alter_function alter_view_dialect clear_consumers clone compact
compact_chain_table compact_database compact_manifest copy create_branch create_function
create_global_index create_tag create_tag_from_timestamp create_tag_from_watermark
data_evolution_merge_into delete_branch delete_tag drop_function drop_global_index drop_partition
expire_changelogs expire_partitions expire_snapshots expire_tags fast_forward full_text_search
mark_partition_done materialize_deletion_vectors merge_branch merge_into migrate_database
migrate_table purge_files query_service reassign_row_id refresh_object_table remove_orphan_files
remove_unexisting_files remove_unexisting_manifests rename_branch rename_tag repair
repair_earliest_snapshot replace_tag rescale reset_consumer rewrite_file_index rollback rollback_to
rollback_to_as_latest rollback_to_timestamp rollback_to_watermark trigger_tag_automatic_creation
vector_search
"""


@pytest.mark.parametrize("name", OF_PAIMON.split())
def test_each_procedure_of_paimon_runs_or_says_why_not(name: str) -> None:
    if name in REFUSED:
        with pytest.raises(UnsupportedFeatureError, match=re.escape(f"`sys.{name}`")) as caught:
            find_procedure(name)
        assert len(caught.value.hint) > 10
        return
    procedure = find_procedure(name.upper())
    assert procedure.run is not None
    names = [one for a in procedure.arguments for one in (a.name, *a.aliases)]
    assert len(names) == len(set(names))
    required = [one.required for one in procedure.arguments]
    assert required == sorted(required, reverse=True) or name == "merge_into"


def test_no_procedure_runs_and_is_refused() -> None:
    assert not set(PROCEDURES) & set(REFUSED)


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == procedures_page(), "run `make docs`"


def test_a_procedure_is_described() -> None:
    rows = describe_procedure("sys.create_tag").to_pylist()
    assert [row["argument"] for row in rows] == ["table", "tag", "snapshot_id", "time_retained"]
    assert [row["required"] for row in rows] == [True, True, False, False]
    with pytest.raises(NotFoundError, match="did you mean create_tag"):
        describe_procedure("create_tagg")


def test_values_of_both_engines_are_understood(tmp_path) -> None:
    make_table(tmp_path)
    session = SqlSession(FileSystemCatalog(str(tmp_path)), database="db")
    procedure = find_procedure("expire_snapshots")

    def bound(arguments: str) -> dict:
        (node,) = statements(f"CALL sys.expire_snapshots({arguments})")
        call = node.parse()
        found = procedure.bind(session, call, call.args["arguments"])
        return {one.name: found[one.name] for one in procedure.arguments}

    session.options["table.local-time-zone"] = "UTC"
    expected = {
        "table": "t",
        "retain_max": 2,
        "retain_min": None,
        "older_than": 1_704_067_200_000,
        "max_deletes": None,
        "options": {"a": "1", "b": "2"},
    }
    assert bound("'t', 2, '', '2024-01-01 00:00:00', '', 'a=1, b=2'") == expected
    by_name = "older_than => 1704067200000, RetainMax => '2', options => map('a', '1', 'b', 2)"
    assert bound(f"table => 't', {by_name}") == expected
    with pytest.raises(SqlError, match="retain_max is an integer"):
        bound("'t', true")


def test_compaction_changes_files_and_no_rows(tmp_path) -> None:
    table = make_table(tmp_path, keys=(), options={"bucket": "-1"})
    for number in range(3):
        write(table, number, [("+I", number, "v")])
    session = SqlSession(FileSystemCatalog(str(tmp_path), file_io=table.file_io), database="db")
    before = rows_of(table)
    list(session.execute("CALL sys.compact('t', 'order', 'k')"))
    assert rows_of(table) == before
    assert len(newest_entries(table)) == 1
