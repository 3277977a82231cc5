# SPDX-License-Identifier: Apache-2.0
"""Apache Paimon's Spark connector in a Spark of its own: everything it does is SQL.

The connector that Maven gives out is 0.9.0 for Spark 3.5; `.venv-spark-peer` of the repository, or
the interpreter named by LAKEWARD_SPARK_PEER_PYTHON, must hold that Spark. Rows travel as Parquet
files written and read by plain pyarrow and by Spark.
"""

import os
import pathlib
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from storage.format.metadata.schema_changes import (
    AddColumn,
    DropColumn,
    MoveColumn,
    RenameColumn,
    SchemaChange,
    UpdateType,
)
from storage.format.types.types import (
    ArrayType,
    AtomicType,
    DataField,
    DataType,
    MapType,
    RowType,
    TypeRoot,
    arrow_type,
)
from tests.interop import artifacts
from tests.interop.child import Child, ChildError
from tests.interop.generated_tables import Case
from tests.interop.java_peer import Rows
from tests.interop.peers import ROOT

__all__ = ["SPARK_VERSION", "SparkFailedError", "SparkPeer", "installed"]

SPARK_VERSION = "3.5.9"
SCRIPT = pathlib.Path(__file__).with_name("spark_child.py")
START_S = 120.0
ANSWER_S = 180.0


def installed() -> tuple[str, str]:
    """The interpreter with Spark, and the jars of Paimon's and Iceberg's connectors, by comma.

    Raises:
        ArtifactUnavailableError: one is missing.
    """
    default = str(ROOT / ".venv-spark-peer" / "bin" / "python")
    python = os.environ.get("LAKEWARD_SPARK_PEER_PYTHON", default)
    if not pathlib.Path(python).exists():
        raise artifacts.ArtifactUnavailableError(f"{python} is missing: run `make peers`")
    jars = (artifacts.SPARK, artifacts.ICEBERG)
    return python, ",".join(str(artifacts.jar(jar, fetch=False)) for jar in jars)


class SparkFailedError(AssertionError):
    """Spark refused a statement; the text is its stack trace."""


class SparkPeer:
    """One Spark session and one warehouse. Tables are named `database.table`."""

    def __init__(self, child: Child, warehouse: pathlib.Path, scratch: pathlib.Path) -> None:
        self._child = child
        self._scratch = scratch
        self.warehouse = warehouse

    @staticmethod
    def start(folder: pathlib.Path) -> "SparkPeer":
        """Start Spark below a folder.

        Raises:
            ArtifactUnavailableError: the jar or the virtualenv is missing.
        """
        python, jars = installed()
        warehouse, scratch = folder / "warehouse", folder / "scratch"
        warehouse.mkdir()
        scratch.mkdir()
        own = {"PYSPARK_PYTHON": python, "SPARK_HOME": "", "SPARK_LOCAL_IP": "127.0.0.1"}
        child = Child([python, str(SCRIPT)], {key: value for key, value in own.items() if value})
        settings = {"jar": jars, "warehouse": str(warehouse), "scratch": str(scratch)}
        child.ask(settings, START_S)
        return SparkPeer(child, warehouse, scratch)

    def close(self) -> None:
        """End Spark."""
        self._child.close()

    # ------------------------------------------------------------------------------- running

    def run(
        self, *statements: str, views: Mapping[str, pa.Table] | None = None, own: bool = False
    ) -> None:
        """Run statements; they may read the given tables as views.

        Args:
            statements: SQL.
            views: tables by name.
            own: in the session of `fresh`.

        Raises:
            SparkFailedError: one failed.
        """
        files = {}
        for name, table in (views or {}).items():
            files[name] = str(self._scratch / f"{name}.parquet")
            pq.write_table(table, files[name], coerce_timestamps="us")
        self._ask({"views": files, "statements": list(statements), "own": own})

    def fresh(self, warehouse: pathlib.Path) -> None:
        """Begin a session of its own on another warehouse, with the empty database `db`."""
        self._ask({"fresh": str(warehouse)})

    def outcome(self, text: str, settings: Mapping[str, str]) -> dict[str, Any]:
        """What a statement gives in the session of `fresh`: `columns`, `types` and `rows`, or
        `failure` (a class) and `text`.
        """
        found: dict[str, Any] = self._ask({"outcome": text, "settings": dict(settings)})["outcome"]
        return found

    def state(self) -> dict[str, dict[str, Any]]:
        """Columns, types and rows of every table of `db` in the session of `fresh`."""
        found: dict[str, dict[str, Any]] = self._ask({"state": True})["state"]
        return found

    def read(self, name: str, fields: Sequence[DataField], query: str | None = None) -> pa.Table:
        """All rows, in the Arrow types of the fields.

        Raises:
            SparkFailedError: the query failed.
        """
        output = tempfile.mktemp(prefix="read-", dir=self._scratch)
        self._ask({"query": query or f"SELECT * FROM {name}", "output": output})
        found = pq.read_table(output)
        pathlib.Path(output).unlink()
        schema = pa.schema([pa.field(field.name, arrow_type(field.type)) for field in fields])
        return found.select(schema.names).cast(schema)

    def query(
        self,
        text: str,
        iceberg: Mapping[str, tuple[str, Mapping[str, str]]] | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> pa.Table:
        """Rows of a query, in the types of Spark's Parquet files.

        Args:
            text: SQL.
            iceberg: views of the query: directories of Iceberg tables with options of the read.
            settings: of the session from now on, such as catalogs.

        Raises:
            SparkFailedError: it failed.
        """
        output = tempfile.mktemp(prefix="read-", dir=self._scratch)
        order = {"query": text, "output": output, "iceberg": iceberg or {}}
        self._ask({**order, "settings": dict(settings or {})})
        found = pq.read_table(output)
        pathlib.Path(output).unlink()
        return found

    def _ask(self, order: Mapping[str, object]) -> dict[str, Any]:
        try:
            return self._child.ask(order, ANSWER_S)
        except ChildError as error:
            raise SparkFailedError(str(error)) from error

    # ----------------------------------------------------------------------------------- SQL

    def create(self, name: str, case: Case) -> None:
        """CREATE TABLE."""
        columns = ", ".join(
            f"`{column}` {sql_type(type_)}{'' if type_.nullable else ' NOT NULL'}"
            for column, type_ in case.columns
        )
        options = dict(case.options)
        if case.keys:
            options["primary-key"] = ",".join(case.keys)
        told = ", ".join(f"'{key}' = '{value}'" for key, value in options.items())
        by = f" PARTITIONED BY ({', '.join(case.partitions)})" if case.partitions else ""
        self.run(f"CREATE TABLE {name} ({columns}) USING paimon{by} TBLPROPERTIES ({told})")

    def write(
        self, name: str, columns: Sequence[DataField], keys: Sequence[str], rows: Rows
    ) -> None:
        """INSERT the rows that stay and DELETE those that a `-D` took last."""
        last: dict[object, int] = {}
        places = [next(i for i, c in enumerate(columns) if c.name == key) for key in keys]
        for number, (_, values) in enumerate(rows):
            last[tuple(repr(values[i]) for i in places) if keys else number] = number
        kept = [rows[number] for number in sorted(last.values())]
        stay = _table(columns, [values for kind, values in kept if kind in ("+I", "+U")])
        gone = _table(columns, [values for kind, values in kept if kind == "-D"])
        if stay.num_rows:
            self.run(f"INSERT INTO {name} SELECT * FROM stay", views={"stay": stay})
        if gone.num_rows:
            these = [
                " AND ".join(
                    f"`{key}` = {literal(gone[key][n], columns[i].type)}"
                    for key, i in zip(keys, places, strict=True)
                )
                for n in range(gone.num_rows)
            ]
            self.run(f"DELETE FROM {name} WHERE ({') OR ('.join(these)})")

    def delete(self, name: str, column: str, values: Sequence[int]) -> None:
        """DELETE by the values of a column."""
        self.run(f"DELETE FROM {name} WHERE {column} IN ({', '.join(map(str, values))})")

    def compact(self, name: str) -> None:
        """The compaction procedure."""
        self.run(f"CALL sys.compact(table => '{name}')")

    def alter(self, name: str, change: SchemaChange) -> None:
        """ALTER TABLE."""
        self.run(f"ALTER TABLE {name} {_clause(change)}")


def _clause(change: SchemaChange) -> str:
    match change:
        case AddColumn():
            path = change.name if isinstance(change.name, str) else ".".join(change.name)
            place = f" AFTER {change.after}" if change.after else " FIRST" if change.first else ""
            return f"ADD COLUMN {path} {sql_type(change.type)}{place}"
        case DropColumn(name=str(name)):
            return f"DROP COLUMN {name}"
        case RenameColumn(name=str(name)):
            return f"RENAME COLUMN {name} TO {change.new_name}"
        case UpdateType(name=str(name)):
            return f"ALTER COLUMN {name} TYPE {sql_type(change.type)}"
        case MoveColumn(name=str(name)):
            return f"ALTER COLUMN {name} {'FIRST' if change.first else f'AFTER {change.after}'}"
        case _:
            raise NotImplementedError(change)


def literal(value: pa.Scalar, type_: DataType) -> str:
    """A value of a key column in Spark SQL.

    Raises:
        NotImplementedError: keys of this type are not generated.
    """
    assert isinstance(type_, AtomicType)
    found = value.as_py()
    match type_.root:
        case TypeRoot.BOOLEAN:
            return str(found).lower()
        case TypeRoot.DATE:
            return f"DATE '{found}'"
        case TypeRoot.TIMESTAMP:
            return f"TIMESTAMP_NTZ '{found}'"
        case TypeRoot.VARCHAR:
            escaped = found.replace("\\", "\\\\").replace("'", "\\'")
            return f"'{escaped}'"
        case TypeRoot.VARBINARY:
            return f"X'{found.hex()}'"
        case TypeRoot.DECIMAL:
            return f"CAST('{found}' AS DECIMAL({type_.precision}, {type_.scale}))"
        case _:
            return f"CAST({found} AS {type_.root.value})"


def sql_type(type_: DataType) -> str:
    """The Spark SQL type that the connector turns into a type of Paimon.

    Raises:
        NotImplementedError: Spark has none.
    """
    match type_:
        case ArrayType(element=element):
            return f"ARRAY<{sql_type(element)}>"
        case MapType(key=key, value=value):
            return f"MAP<{sql_type(key)}, {sql_type(value)}>"
        case RowType(fields=fields):
            return f"STRUCT<{', '.join(f'{f.name}: {sql_type(f.type)}' for f in fields)}>"
        case AtomicType(root=TypeRoot.DECIMAL):
            return f"DECIMAL({type_.precision}, {type_.scale})"
        case AtomicType(root=TypeRoot.TIMESTAMP, precision=6):
            return "TIMESTAMP_NTZ"
        case AtomicType(root=TypeRoot.TIMESTAMP_LTZ, precision=6):
            return "TIMESTAMP"
        case AtomicType(root=TypeRoot.CHAR):
            return f"CHAR({type_.length})"
        case AtomicType(root=TypeRoot.VARCHAR):
            return "STRING" if type_.length == 2**31 - 1 else f"VARCHAR({type_.length})"
        case AtomicType(root=TypeRoot.VARBINARY):
            return "BINARY"
        case AtomicType(root=root) if root in _SAME:
            return root.value
        case _:
            raise NotImplementedError(f"Spark SQL has no {type_}")


_SAME = frozenset(
    {
        TypeRoot.BOOLEAN,
        TypeRoot.TINYINT,
        TypeRoot.SMALLINT,
        TypeRoot.INT,
        TypeRoot.BIGINT,
        TypeRoot.FLOAT,
        TypeRoot.DOUBLE,
        TypeRoot.DATE,
    }
)


def _table(columns: Sequence[DataField], rows: Sequence[Sequence[object]]) -> pa.Table:
    return pa.table(
        {
            field.name: pa.array([row[i] for row in rows], arrow_type(field.type))
            for i, field in enumerate(columns)
        }
    )
