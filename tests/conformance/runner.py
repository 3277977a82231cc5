# SPDX-License-Identifier: Apache-2.0
"""Runs one conformance case against the storage layer.

What the steps and expectations mean is in the legend of the case file. A case that needs a later
feature is not run; a check that needs one is left out and the rest of the case still runs.
"""

import contextlib
import dataclasses
import os
import pathlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from storage.catalog.catalog import FileSystemCatalog
from storage.errors import LakewardError
from tests.conformance.cases import UnknownKeyError, require_known_keys
from tests.conformance.features import case_needs, check_needs, later
from tests.conformance.id_sets import decoded_like
from tests.conformance.looking import Seen, look, row_differences
from tests.conformance.session import TableSession
from tests.conformance.statements import CaseStatements
from tests.conformance.system_tables import Stream
from tests.conformance.units import run_unit
from tests.conformance.values import expected_changes, expected_rows, found_rows
from tests.e2e.availability import PartUnavailableError
from tests.e2e.hive_metastore import hive_metastore
from tests.golden.values import difference
from tests.reporting import CaseReport

__all__ = ["needs_hive", "run_case"]


@dataclasses.dataclass(slots=True)
class _Run:
    """A case on its way."""

    case: Mapping[str, Any]
    report: CaseReport
    warehouse: pathlib.Path
    session: TableSession | None = None
    json: Any = None
    seen: Seen | None = None
    stream: Stream | None = None
    statements: CaseStatements | None = None

    @property
    def sql(self) -> CaseStatements:
        """What runs the statements of the case, which share a session."""
        if self.statements is None:
            views = "VIEW" in str(self.case["steps"]).upper()
            self.statements = CaseStatements(self.warehouse, self.session, views=views)
        return self.statements

    @property
    def expect(self) -> Mapping[str, Any]:
        expect: Mapping[str, Any] = self.case["expect"]
        return expect

    @property
    def unordered(self) -> Sequence[str]:
        return tuple(self.expect.get("unordered_columns", ()))

    @property
    def open_session(self) -> TableSession:
        if self.session is None:
            raise ValueError("the case has no table")
        return self.session

    def fail(self, place: str, text: str) -> None:
        self.report.failures.append(f"{place}: {text}")


def run_case(case: Mapping[str, Any], warehouse: pathlib.Path) -> CaseReport:
    """Run a case; every difference is in the report, nothing is raised.

    Args:
        case: parsed; unknown keys make it fail.
        warehouse: where its table goes.
    """
    report = CaseReport(str(case.get("id", "without id")))
    try:
        require_known_keys(case)
    except UnknownKeyError as error:
        report.failures.append(str(error))
        return report
    report.left_out.extend(later(case_needs(case)))
    if report.left_out:
        return report
    run = _Run(case, report, warehouse)
    with contextlib.ExitStack() as stack:
        if needs_hive(case):
            try:
                stack.enter_context(_hive_configuration(warehouse))
            except PartUnavailableError as failed:
                report.left_out.append(f"no Hive metastore: {failed}")
                return report
        error = _steps_error(run, warehouse)
    wanted = run.expect.get("error")
    if wanted is not None:
        report.checked.append("error")
        _check_error("error", wanted, error, run)
    elif error is not None:
        run.fail("raised", _error_text(error))
    else:
        _check_expectations(run)
    return report


def needs_hive(case: Mapping[str, Any]) -> bool:
    """Whether a case opens a Hive catalog."""
    return any("'metastore'='hive'" in str(step.get("sql")) for step in case["steps"])


@contextlib.contextmanager
def _hive_configuration(warehouse: pathlib.Path) -> Iterator[None]:
    """A metastore, which HIVE_CONF_DIR names as Hive's own configuration does."""
    before = os.environ.get("HIVE_CONF_DIR")
    with hive_metastore() as server:
        properties = {
            "hive.metastore.uris": server.uri,
            "hive.metastore.warehouse.dir": f"file://{warehouse}/hive",
        }
        rows = "".join(
            f"<property><name>{key}</name><value>{value}</value></property>"
            for key, value in properties.items()
        )
        folder = warehouse / "hive-conf"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "hive-site.xml").write_text(f"<configuration>{rows}</configuration>")
        os.environ["HIVE_CONF_DIR"] = str(folder)
        try:
            yield
        finally:
            if before is None:
                del os.environ["HIVE_CONF_DIR"]
            else:
                os.environ["HIVE_CONF_DIR"] = before


def _steps_error(run: _Run, warehouse: pathlib.Path) -> Exception | None:
    """Create the table, run all steps and read at the end; what was raised, or None."""
    try:
        description = run.case.get("table")
        if description is not None:
            name = re.sub(r"\W", "_", run.report.name)
            run.session = TableSession(warehouse, name, description)
        for number, step in enumerate(run.case["steps"], start=1):
            for kind, body in step.items():
                _run_step(run, f"step {number} ({kind})", kind, body)
        if run.expect.get("error") is not None and run.session is not None:
            run.session.read()
    except Exception as error:
        return error
    return None


def _run_step(run: _Run, place: str, kind: str, body: Any) -> None:
    reasons = later(check_needs(kind, body))
    if reasons:
        run.report.left_out.extend(f"{place} ({reason})" for reason in reasons)
        return
    for text in _STEPS[kind](run, body):
        run.fail(place, text)


# --------------------------------------------------------------------------------- steps


def _write(run: _Run, body: Mapping[str, Any]) -> Iterator[str]:
    if "overwrite" in body:
        run.open_session.overwrite(body["rows"], body["overwrite"])
    else:
        with run.open_session.on_branch(body.get("branch", "main")):
            run.open_session.write(body["rows"], write_only=body.get("write_only", False))
    yield from ()


def _compact(run: _Run, body: str) -> Iterator[str]:
    del body
    run.open_session.compact()
    yield from ()


def _alter(run: _Run, body: Mapping[str, Any]) -> Iterator[str]:
    run.open_session.alter(body)
    yield from ()


def _call(run: _Run, body: Mapping[str, Any]) -> Iterator[str]:
    for name, arguments in body.items():
        if name == "expire_snapshots":
            run.open_session.expire(**arguments)
        elif name == "truncate_table":
            run.open_session.truncate()
        elif name == "drop_partition":
            run.open_session.truncate(arguments)
        elif name in _SESSION_CALLS:
            getattr(run.open_session, name)(**arguments)
        elif name == "remove_orphan_files":
            run.open_session.remove_orphan_files()
        elif name == "rewrite_file_index":
            run.open_session.rewrite_file_index()
        else:
            yield f"the runner has no call `{name}`"


_SESSION_CALLS = frozenset(
    {"create_tag", "delete_tag", "create_branch", "reset_consumer", "rollback_to"}
)


def _commit_as(run: _Run, body: Mapping[str, Any]) -> Iterator[str]:
    batch = body.get("mode", "stream") == "batch"
    run.open_session.write_as(body["user"], body["identifier"], body["rows"], batch=batch)
    yield from ()


def _filter_and_commit(run: _Run, body: Mapping[str, Any]) -> Iterator[str]:
    session = run.open_session
    survivors = session.filter_committed(body["user"], body["identifiers"])
    for identifier in survivors:
        session.write_as(body["user"], identifier, body["rows_by_identifier"][identifier])
    if len(survivors) != body["expect_committed"]:
        yield f"expected {body['expect_committed']} commits, {survivors} were not filtered"


def _prepare(run: _Run, body: Mapping[str, Any]) -> Iterator[str]:
    run.open_session.prepare(body["writer"], body["rows"])
    yield from ()


def _commit(run: _Run, body: str) -> Iterator[str]:
    run.open_session.commit_prepared(body)
    yield from ()


def _unit(run: _Run, body: Mapping[str, Any]) -> Iterator[str]:
    run.report.checked.append(body["fn"])
    yield from run_unit(body, run.expect)


def _read_json(run: _Run, body: str) -> Iterator[str]:
    run.json = run.open_session.read_json(body)
    yield from ()


def _count_files(run: _Run, body: Mapping[str, Any]) -> Iterator[str]:
    found = run.open_session.matching_files(body["glob"])
    if len(found) != body["expect"]:
        yield f"expected {body['expect']} files, found {[path.name for path in found]}"


def _create_file(run: _Run, body: Mapping[str, Any]) -> Iterator[str]:
    run.open_session.create_file(body["path"], body["age_hours"])
    yield from ()


def _check(run: _Run, body: Mapping[str, Any]) -> Iterator[str]:
    run.report.checked.append("check")
    try:
        catalog = FileSystemCatalog(str(run.warehouse))
        statements = run.sql if "sql" in body else None
        seen = run.seen = look(run.session, body, catalog, statements)
    except LakewardError as error:
        if "error" not in body:
            raise
        yield from _error_difference(body["error"], error)
        return
    if "error" in body:
        yield f"expected error `{body['error']}`, nothing was raised"
    if seen.opened > body.get("files_read_max", seen.opened):
        yield f"opened {seen.opened} data files, at most {body['files_read_max']} are allowed"
    yield from row_differences(_placed(body, run.warehouse), seen, run.unordered)


def _placed(body: Mapping[str, Any], warehouse: pathlib.Path) -> Mapping[str, Any]:
    """The expectations with the path of the warehouse put in."""
    if "contains" not in body:
        return body
    rows = [
        [str(warehouse) if value == "<warehouse path>" else value for value in row]
        for row in body["contains"]
    ]
    return {**body, "contains": rows}


def _sql(run: _Run, body: str) -> Iterator[str]:
    run.report.checked.append("sql")
    run.sql.run(body)
    yield from ()


def _stream(run: _Run, body: Mapping[str, Any]) -> Iterator[str]:
    yield from _stream_start(run, body)
    assert run.stream is not None
    yield from _deliveries(run, run.stream, body.get("follow_up", []))


def _stream_start(run: _Run, body: Mapping[str, Any]) -> Iterator[str]:
    run.report.checked.append("stream")
    run.stream = run.open_session.stream(body.get("options") or {})
    fields = run.open_session.fields
    wanted = expected_rows(body.get("first_plan", []), fields, run.unordered)
    text = difference(wanted, run.stream.first_plan(run.unordered))
    if text:
        yield f"first plan: {text}"


def _deliveries(run: _Run, stream: Stream, wanted: Sequence[Any]) -> Iterator[str]:
    found = stream.delivered()
    if len(found) != len(wanted):
        yield f"{len(wanted)} deliveries expected, found {found}"
        return
    yield from _compare_changes(run, wanted, found)


_STEPS: Mapping[str, Callable[[_Run, Any], Iterator[str]]] = {
    "write": _write,
    "compact": _compact,
    "alter": _alter,
    "call": _call,
    "commit_as": _commit_as,
    "filter_and_commit": _filter_and_commit,
    "prepare": _prepare,
    "commit": _commit,
    "unit": _unit,
    "read_json": _read_json,
    "count_files": _count_files,
    "create_file": _create_file,
    "check": _check,
    "sql": _sql,
    "stream": _stream,
    "stream_start": _stream_start,
}


# -------------------------------------------------------------------------- expectations


def _check_expectations(run: _Run) -> None:
    has_unit = any("unit" in step for step in run.case["steps"])
    for key, value in run.expect.items():
        if key in _ARGUMENTS or (has_unit and key in _UNIT_RESULTS):
            continue
        if key in _OF_QUERY and run.report.left_out:
            continue  # the query it is about was left out
        check = _EXPECTATIONS.get(key)
        if check is None:
            run.fail(key, "nothing in the case gives this result")
            continue
        try:
            for text in check(run, value):
                run.fail(key, text)
        except Exception as error:
            run.fail(key, _error_text(error))
        run.report.checked.append(key)


def _expect_rows(run: _Run, wanted: Sequence[Sequence[Any]]) -> Iterator[str]:
    rows, fields, _ = run.open_session.read()
    expected = expected_rows(wanted, fields, run.unordered)
    text = difference(*decoded_like(wanted, expected, found_rows(rows, fields, run.unordered)))
    if text:
        yield text


def _expect_changelog(run: _Run, wanted: Sequence[Sequence[Any]]) -> Iterator[str]:
    session = run.open_session
    yield from _compare_changes(run, wanted, [session.changelog(c) for c in session.commits])


def _expect_delta_stream(run: _Run, wanted: Sequence[Sequence[Any]]) -> Iterator[str]:
    session = run.open_session
    yield from _compare_changes(run, wanted, [session.delta_stream(c) for c in session.commits])


def _compare_changes(
    run: _Run, wanted: Sequence[Sequence[Any]], found: Sequence[list[tuple[Any, ...]]]
) -> Iterator[str]:
    if len(wanted) != len(found):
        yield f"{len(wanted)} commits expected, {len(found)} made"
        return
    fields = run.open_session.fields
    for number, (expected, changes) in enumerate(zip(wanted, found, strict=True), start=1):
        text = difference(expected_changes(expected, fields), changes)
        if text:
            yield f"commit {number}: {text}"
        elif not _before_precedes_after(run, changes):
            yield f"commit {number}: a -U does not come before its +U: {changes}"


def _before_precedes_after(run: _Run, changes: Sequence[tuple[Any, ...]]) -> bool:
    schema = run.open_session.table.schema
    places = [schema.field_names.index(name) + 1 for name in schema.primary_keys]
    pending: set[tuple[Any, ...]] = set()
    paired = {tuple(change[place] for place in places) for change in changes if change[0] == "-U"}
    for change in changes:
        key = tuple(change[place] for place in places)
        if change[0] == "-U":
            pending.add(key)
        elif change[0] == "+U" and key in paired and key not in pending:
            return False
    return True


def _expect_deliveries(run: _Run, wanted: Sequence[Any]) -> Iterator[str]:
    if run.stream is None:
        raise ValueError("the case opens no stream")
    yield from _deliveries(run, run.stream, wanted)


def _expect_files_glob(run: _Run, patterns: Sequence[str]) -> Iterator[str]:
    for pattern in patterns:
        if not run.open_session.matching_files(pattern):
            yield f"no file matches {pattern}"


def _expect_json(run: _Run, wanted: Mapping[str, Any]) -> Iterator[str]:
    found = {key: value for key, value in run.json.items() if key != "timeMillis"}
    if found.get("version", 0) > wanted.get("version", 0):
        found["version"] = wanted.get("version")
    if found != wanted:
        yield f"expected {dict(wanted)}, found {found}"


def _expect_json_subset(run: _Run, wanted: Mapping[str, Any]) -> Iterator[str]:
    for key, value in wanted.items():
        if run.json.get(key) != value:
            yield f"{key}: expected {value}, found {run.json.get(key)}"


def _expect_file_columns(run: _Run, wanted: Sequence[str]) -> Iterator[str]:
    files = run.open_session.matching_files("**/bucket-*/data-*.parquet")
    if not files:
        yield "there is no data file"
    for path in files:
        names = run.open_session.file_columns(path)
        if sorted(names) != sorted(wanted):
            yield f"{path.name}: expected columns {sorted(wanted)}, found {sorted(names)}"


def _expect_columns(run: _Run, wanted: Sequence[str]) -> Iterator[str]:
    names = _seen(run).names
    if names[: len(wanted)] != list(wanted):
        yield f"expected {wanted}, found {names}"


def _expect_row_count(run: _Run, wanted: int) -> Iterator[str]:
    found = _seen(run).rows.num_rows
    if found != wanted:
        yield f"expected {wanted} rows, found {found}"


def _expect_projection(run: _Run, wanted: Mapping[str, Any]) -> Iterator[str]:
    seen = _seen(run)
    fields = [seen.fields[seen.names.index(name)] for name in wanted["columns"]]
    found = dataclasses.replace(seen, fields=fields).comparable(run.unordered)
    text = difference(expected_rows(wanted["rows"], fields, run.unordered), found)
    if text:
        yield text


def _seen(run: _Run) -> Seen:
    if run.seen is None:
        raise ValueError("the case has no check to take this from")
    return run.seen


_ARGUMENTS = frozenset({"ok", "error", "unordered_columns"})
_OF_QUERY = frozenset({"columns", "row_count", "project", "follow_up_after"})
_UNIT_RESULTS = frozenset(
    {
        *("pick", "sections", "sections_runs", "remaining", "tags_after_each", "expired"),
        *("buckets", "buckets_prefix", "last_in"),
    }
)
_EXPECTATIONS: Mapping[str, Callable[[_Run, Any], Iterator[str]]] = {
    "columns": _expect_columns,
    "row_count": _expect_row_count,
    "project": _expect_projection,
    "rows": _expect_rows,
    "changelog": _expect_changelog,
    "delta_stream": _expect_delta_stream,
    "follow_up_after": _expect_deliveries,
    "files_glob": _expect_files_glob,
    "json": _expect_json,
    "json_subset": _expect_json_subset,
    "data_file_columns_unordered": _expect_file_columns,
}


# -------------------------------------------------------------------------------- errors


def _check_error(place: str, wanted: str, error: Exception | None, run: _Run) -> None:
    if error is None:
        run.fail(place, f"expected `{wanted}`, nothing was raised")
        return
    for text in _error_difference(wanted, error):
        run.fail(place, text)


def _error_difference(wanted: str, error: Exception) -> Iterator[str]:
    if not isinstance(error, LakewardError) or wanted.lower() not in str(error).lower():
        yield f"expected `{wanted}`, found {_error_text(error)}"


def _error_text(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:400]}"
