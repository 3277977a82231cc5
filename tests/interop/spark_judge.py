# SPDX-License-Identifier: Apache-2.0
"""Judges the cases of `tests/sql` by Apache Paimon's Spark connector.

Every statement runs in both, on the same tables: those of the case, made by Spark from the same
rows. After a statement that may change something, columns, types and rows of all tables of the
database are compared; where they differ, Spark's tables are made again from ours, so that every
later statement is judged for itself.

A verdict is one of
    agrees      both refuse, or both succeed with the same rows, names of columns and tables;
    grammar     Spark's grammar does not have the statement (Flink's spelling, mostly): not judged;
    differs     everything else. `differences.yaml` beside this module lists them with reasons.

Compared is what both engines have: names of result columns only where both are identifiers (others
are the texts of expressions), results of SHOW and DESCRIBE by what they list, and of CALL
by success and by the tables afterwards (Flink's procedures answer `Success`, Spark's `true`).

    python -m tests.interop.spark_judge [file[/case] …]     # print what differs
"""

import argparse
import contextlib
import dataclasses
import decimal
import json
import math
import pathlib
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import yaml

from ingest.observe.text_table import plain, rows_of
from storage.errors import LakewardError
from storage.format.metadata.schema import TableSchema
from storage.format.types.types import (
    ArrayType,
    AtomicType,
    DataType,
    MapType,
    RowType,
    TypeRoot,
    parse_type,
)
from storage.sql.session import SqlSession
from tests.interop.spark_peer import SparkFailedError, SparkPeer
from tests.sql import suite

__all__ = ["DIFFERENCES", "Declared", "Verdict", "declared", "judge_case", "judge_file"]

DIFFERENCES = pathlib.Path(__file__).with_name("differences.yaml")
_CHANGES = re.compile(
    r"\s*(INSERT|DELETE|UPDATE|MERGE|ALTER|CREATE|DROP|TRUNCATE|CALL|ANALYZE|COMMENT|FROM|WITH)\b",
    re.I,
)
_HINT = re.compile(r"/\*\+\s*OPTIONS\s*\(((?:\s*'[^']*'\s*=\s*'[^']*'\s*,?)*)\)\s*\*/", re.I)
_PAIR = re.compile(r"'([^']*)'\s*=\s*'([^']*)'")
_SYSTEM_TABLE = re.compile(r"(?<![`\w$])(\w+(?:\$\w+)+)(?![`\w$])")
_SET = re.compile(r"\s*SET\s+'([^']+)'\s*=\s*'([^']*)'\s*$", re.I)
_RESET = re.compile(r"\s*RESET\s+'([^']+)'\s*$", re.I)
_SYNTAX = re.compile(r"expected |the statement cannot be parsed|the text cannot be split")
_ZONE = "table.local-time-zone"


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What became known of one step.

    Attributes:
        id: `file/case/number`, the first step being 1.
        kind: agrees, grammar or differs.
        text: the difference.
    """

    id: str
    sql: str
    kind: str
    text: str = ""


@dataclasses.dataclass(frozen=True)
class Declared:
    """A known difference.

    Attributes:
        cause: `version` (0.9 is older than the documents we follow), `spark` (Spark's SQL, or what
            its connector cannot do) or `ours` (a decision of ours, which the documents allow).
        reason: why.
        document: the sentence that we follow.
    """

    cause: str
    reason: str
    document: str


def declared() -> dict[str, Declared]:
    """The known differences by the ids of their steps."""
    found = {}
    for entry in yaml.safe_load(DIFFERENCES.read_text(encoding="utf-8")):
        for name in entry.pop("steps"):
            assert name not in found, name
            found[name] = (
                Declared(**entry) if "document" in entry else Declared(document="", **entry)
            )
    return found


def judge_file(path: pathlib.Path, peer: SparkPeer, only: str = "") -> Iterator[Verdict]:
    """Verdicts of a file's cases."""
    for case in suite.load(path):
        if not only or case["id"] == only:
            with tempfile.TemporaryDirectory() as directory:
                yield from judge_case(
                    case, f"{path.stem}/{case['id']}", peer, pathlib.Path(directory)
                )


def judge_case(
    case: Mapping[str, Any], name: str, peer: SparkPeer, folder: pathlib.Path
) -> Iterator[Verdict]:
    """Verdicts of a case's steps, in order."""
    both = _Both(case, peer, folder)
    for number, step in enumerate(case["steps"], start=1):
        kind, text = both.step(step["sql"])
        yield Verdict(f"{name}/{number}", step["sql"], kind, text)


class _Both:
    """Our session and Spark's, with the same tables."""

    def __init__(self, case: Mapping[str, Any], peer: SparkPeer, folder: pathlib.Path) -> None:
        self._ours, self._theirs = folder / "ours", folder / "theirs"
        self._ours.mkdir()
        self._theirs.mkdir()
        self._peer = peer
        self._session = suite.open_session(case, self._ours)
        self._reader = SqlSession(self._session.catalog, suite.DATABASE)
        self._lost: set[str] = set()
        self._options: dict[str, dict[str, str]] = {}
        peer.fresh(self._theirs)
        for table, description in (case.get("tables") or {}).items():
            self._start(table, description)

    def step(self, sql: str) -> tuple[str, str]:
        """The verdict of a statement, and the difference."""
        ours = suite.outcome(self._session, sql, self._ours)
        text, settings = _spark_spelling(sql)
        text = text.replace("<tmp>", str(self._theirs))
        theirs = self._peer.outcome(text, settings)
        kind, difference = _compared(sql, ours, theirs)
        if _CHANGES.match(re.sub(r"--[^\n]*\n|/\*.*?\*/", " ", sql, flags=re.S)):
            changed = self._level(mirrored=kind == "grammar")
            if changed and kind == "agrees":
                kind, difference = "differs", changed
        return kind, difference

    # --------------------------------------------------------------------------------- tables

    def _start(self, name: str, description: Mapping[str, Any]) -> None:
        """Make a table of the case in Spark, a commit at a time, at the times of ours."""
        schema = self._session.catalog.table(f"{suite.DATABASE}.{name}").schema
        self._create(name, schema)
        arrow = schema.arrow_schema
        for rows in description.get("commits", ()):
            assert all(row[0] in ("+I", "+U") for row in rows)
            columns = [
                pa.array([suite._value(row[place], field.type) for row in rows], field.type)
                if not pa.types.is_temporal(field.type)
                else pa.array([row[place] for row in rows], pa.string()).cast(field.type)
                for place, field in enumerate(arrow, start=1)
            ]
            self._insert(name, pa.Table.from_arrays(columns, schema=arrow))
        for path in (self._theirs / "db.db" / name / "snapshot").glob("snapshot-*"):
            snapshot = json.loads(path.read_text())
            snapshot["timeMillis"] = suite._NOW_MS + suite._MINUTE_MS * snapshot["id"]
            path.write_text(json.dumps(snapshot))
            path.with_name(f".{path.name}.crc").unlink(missing_ok=True)

    def _create(self, name: str, schema: TableSchema) -> None:
        columns = ", ".join(
            f"{_quoted(field.name)} {_spark_type(field.type)}"
            + ("" if field.type.nullable else " NOT NULL")
            + (f" COMMENT {_text(field.description)}" if field.description else "")
            for field in schema.fields
        )
        options = dict(schema.options)
        if schema.primary_keys:
            options["primary-key"] = ",".join(schema.primary_keys)
        given = ", ".join(f"{_text(key)} = {_text(value)}" for key, value in options.items())
        by = f" PARTITIONED BY ({', '.join(map(_quoted, schema.partition_keys))})"
        self._peer.run(
            f"CREATE TABLE paimon.db.{_quoted(name)} ({columns}) USING paimon"
            + (by if schema.partition_keys else "")
            + (f" TBLPROPERTIES ({given})" if given else ""),
            own=True,
        )
        self._options[name] = dict(schema.options)

    def _insert(self, name: str, rows: pa.Table) -> None:
        text = f"INSERT INTO paimon.db.{_quoted(name)} SELECT * FROM incoming"
        self._peer.run(text, views={"incoming": rows}, own=True)

    def _level(self, *, mirrored: bool) -> str:
        """What differs between the tables; Spark's are made equal to ours.

        Args:
            mirrored: the statement ran in ours only, so that changed options are set in Spark.
        """
        catalog = self._session.catalog
        theirs = self._peer.state()
        differences = []
        ours = set()
        if suite.DATABASE in catalog.list_databases():
            ours = set(catalog.list_tables(suite.DATABASE))
        for name in sorted((ours | theirs.keys()) - self._lost):
            difference = self._table_difference(name, name in ours, theirs.get(name))
            if not difference:
                if mirrored:
                    self._mirror_options(name)
                continue
            differences.append(f"table {name}: {difference}")
            try:
                self._peer.run(f"DROP TABLE IF EXISTS paimon.db.{_quoted(name)}", own=True)
                if name in ours:
                    self._create(name, catalog.table(f"{suite.DATABASE}.{name}").schema)
                    rows = self._rows(name)
                    if rows.num_rows:
                        self._insert(name, rows)
            except (SparkFailedError, NotImplementedError, LakewardError) as error:
                self._lost.add(name)
                differences.append(f"table {name} cannot be made in Spark: {str(error)[-200:]}")
        return "; ".join(differences)

    def _mirror_options(self, name: str) -> None:
        """Give Spark's table the options of ours."""
        options = dict(self._session.catalog.table(f"{suite.DATABASE}.{name}").schema.options)
        before = self._options.get(name, {})
        given = [f"{_text(k)} = {_text(v)}" for k, v in options.items() if before.get(k) != v]
        table = f"ALTER TABLE paimon.db.{_quoted(name)}"
        with contextlib.suppress(SparkFailedError):  # it keeps what it refuses to change
            if given:
                self._peer.run(f"{table} SET TBLPROPERTIES ({', '.join(given)})", own=True)
            if taken := [_text(key) for key in before if key not in options]:
                self._peer.run(f"{table} UNSET TBLPROPERTIES ({', '.join(taken)})", own=True)
        self._options[name] = options

    def _rows(self, name: str) -> pa.Table:
        *_, found = self._reader.execute(f"SELECT * FROM db.{_quoted(name)}")
        assert found.rows is not None
        return pa.table(found.rows)

    def _table_difference(self, name: str, is_ours: bool, theirs: Mapping[str, Any] | None) -> str:
        if not is_ours:
            return "Spark has it, we have not"
        if theirs is None:
            return "we have it, Spark has not"
        schema = self._session.catalog.table(f"{suite.DATABASE}.{name}").schema
        try:
            columns = [[f.name, _normal_type(_spark_type(f.type))] for f in schema.fields]
        except NotImplementedError as error:
            return str(error)
        shown = zip(theirs.get("columns", ()), theirs.get("types", ()), strict=True)
        other = [[column, _normal_type(type_)] for column, type_ in shown]
        if columns != other and "failure" not in theirs:
            return f"columns: ours {columns}, Spark's {other}"
        try:
            rows = [[plain(value) for value in row] for row in rows_of(self._rows(name))]
        except LakewardError as error:
            return "" if "failure" in theirs else f"only we cannot read it: {error}"
        if "failure" in theirs:
            return f"only Spark cannot read it: {theirs['text'][:300]}"
        return _rows_difference(rows, theirs["rows"], ordered=False)


# --------------------------------------------------------------------------------- statements


def _spark_spelling(sql: str) -> tuple[str, dict[str, str]]:
    """A statement as Spark writes it, and settings that stand for its hint OPTIONS."""
    settings: dict[str, str] = {}
    for options in _HINT.findall(sql):
        settings |= {f"spark.paimon.{key}": value for key, value in _PAIR.findall(options)}
    sql = _HINT.sub("", sql)
    if found := _SET.match(sql):
        key = "spark.sql.session.timeZone" if found[1] == _ZONE else found[1]
        return f"SET `{key}`=`{found[2]}`", settings
    if found := _RESET.match(sql):
        return f"RESET `{found[1]}`", settings
    parts = re.split(r"('(?:[^'\\]|\\.|'')*'|`[^`]*`)", sql)
    parts[::2] = [_SYSTEM_TABLE.sub(r"`\1`", part) for part in parts[::2]]
    return "".join(parts), settings


def _compared(sql: str, ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> tuple[str, str]:
    refused = ours.get("error")
    if "failure" in theirs:
        if theirs["failure"] == "ParseException":
            syntax = refused and _SYNTAX.match(refused["message"])
            return ("agrees" if syntax else "grammar"), theirs["text"]
        if refused:
            return "agrees", ""
        return "differs", f"Spark refuses: {theirs['failure']}: {theirs['text'][:300]}"
    if refused:
        return "differs", f"only we refuse: {refused}; Spark gives {theirs['rows'][:3]}"
    difference = _results_difference(sql, ours, theirs) if "rows" in ours else ""
    return ("differs" if difference else "agrees"), difference


def _results_difference(sql: str, ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    words = [*re.sub(r"--[^\n]*\n|/\*.*?\*/", " ", sql, flags=re.S).upper().split(), "", "", ""]
    mine, other = ours["rows"], theirs["rows"]
    match words[0], words[1]:
        case ("CALL" | "EXPLAIN" | "SET", _) | ("SHOW", "CREATE" | "CURRENT" | "VIEWS"):
            return ""
        case "SHOW", "TABLES" | "DATABASES" | "SCHEMAS":
            place = theirs["columns"].index("tableName") if words[1] == "TABLES" else 0
            other = [[row[place]] for row in other]
        case "SHOW", "TBLPROPERTIES":
            other = [row for row in other if row in mine]
        case "SHOW", _:
            pass
        case "DESC" | "DESCRIBE", _:
            if theirs["columns"][:2] == ["info_name", "info_value"]:
                return ""
            mine, other = list(_described(mine)), list(_columns_described(other))
        case _:
            if len(ours["columns"]) != len(theirs["columns"]):
                return f"columns: ours {ours['columns']}, Spark's {theirs['columns']}"
            for name, spark in zip(ours["columns"], theirs["columns"], strict=True):
                if name != spark and all(re.fullmatch(r"[A-Za-z_]\w*", n) for n in (name, spark)):
                    return f"columns: ours {ours['columns']}, Spark's {theirs['columns']}"
    ordered = re.search(r"ORDER\s+BY", sql, re.I) is not None
    return _rows_difference(mine, other, ordered=ordered)


def _described(rows: Sequence[Sequence[Any]]) -> Iterator[list[Any]]:
    for row in rows:
        if row[0].startswith("#"):
            return
        yield [row[0], _normal_type(_spark_type(parse_type(row[1]))), row[5] or ""]


def _columns_described(rows: Sequence[Sequence[Any]]) -> Iterator[list[Any]]:
    for row in rows:
        if not row[0] or row[0].startswith("#"):
            return
        type_ = re.sub(r"(var)?char\(\d+\)", "string", row[1])
        yield [row[0], _normal_type(type_), row[2] or ""]


# ------------------------------------------------------------------------------ types, values


def _spark_type(type_: DataType) -> str:
    """The type of Spark that holds the values of a type of ours.

    Raises:
        NotImplementedError: there is none.
    """
    match type_:
        case ArrayType(element=element):
            return f"ARRAY<{_spark_type(element)}>"
        case MapType(key=key, value=value):
            return f"MAP<{_spark_type(key)}, {_spark_type(value)}>"
        case RowType(fields=fields):
            return f"STRUCT<{', '.join(f'`{f.name}`: {_spark_type(f.type)}' for f in fields)}>"
        case AtomicType(root=TypeRoot.DECIMAL):
            return f"DECIMAL({type_.precision}, {type_.scale})"
        case AtomicType(root=TypeRoot.TIMESTAMP):
            return "TIMESTAMP_NTZ"
        case AtomicType(root=TypeRoot.TIMESTAMP_LTZ):
            return "TIMESTAMP"
        case AtomicType(root=TypeRoot.CHAR | TypeRoot.VARCHAR):
            return "STRING"
        case AtomicType(root=TypeRoot.BINARY | TypeRoot.VARBINARY):
            return "BINARY"
        case AtomicType(root=TypeRoot.TIME):
            raise NotImplementedError("Spark has no TIME")
        case AtomicType(root=root):
            return root.value
        case _:
            raise NotImplementedError(f"Spark has no {type_}")


def _normal_type(text: str) -> str:
    return re.sub(r"[\s`]", "", text).lower()


def _rows_difference(
    ours: Sequence[Sequence[Any]], theirs: Sequence[Sequence[Any]], *, ordered: bool
) -> str:
    mine = [[_normal(value) for value in row] for row in ours]
    other = [[_normal(value) for value in row] for row in theirs]
    if not ordered:
        mine, other = sorted(mine, key=repr), sorted(other, key=repr)
    return "" if mine == other else f"rows: ours {str(ours)[:400]}, Spark's {str(theirs)[:400]}"


def _normal(value: Any) -> Any:
    """A value without what the types of the engines make of it: 1.50 is 1.5, UTC is no zone."""
    if isinstance(value, list):
        return [_normal(item) for item in value]
    if isinstance(value, dict):
        return {name: _normal(item) for name, item in value.items()}
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if isinstance(value, int | float):
        return f"{float(value):.12g}"
    if re.fullmatch(r"-?\d+\.\d+", value):
        return f"{float(decimal.Decimal(value)):.12g}"
    return value.removesuffix("+00:00")


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _text(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def main() -> None:
    """Print what differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.interop.spark_judge")
    parser.add_argument("only", nargs="*")
    parser.add_argument("--all", action="store_true", help="print declared differences, too")
    arguments = parser.parse_args()
    known = declared()
    counts: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as directory:
        peer = SparkPeer.start(pathlib.Path(directory))
        for name in arguments.only or [path.stem for path in sorted(suite.CASES.glob("*.yaml"))]:
            file, _, case = name.partition("/")
            for verdict in judge_file(suite.CASES / f"{file}.yaml", peer, case):
                kind = verdict.kind
                if kind == "differs" and verdict.id in known:
                    kind = f"differs ({known[verdict.id].cause})"
                elif verdict.id in known:
                    print(f"{verdict.id} is declared, and {kind}", flush=True)
                counts[kind] = counts.get(kind, 0) + 1
                if kind == "differs" or (arguments.all and kind != "agrees"):
                    print(f"{kind} {verdict.id}: {verdict.sql}\n    {verdict.text}", flush=True)
        peer.close()
    print(counts)


if __name__ == "__main__":
    main()
