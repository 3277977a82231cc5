# SPDX-License-Identifier: Apache-2.0
"""DuckDB as the query engine: isolated in its process, without network, extensions or files.

Data files of tables that a query aggregates are the exception: DuckDB may open exactly the planned
ones (`storage.sql.relations`), in an instance of their own.
"""

import os
import re
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Protocol

import duckdb
import pyarrow as pa
from sqlglot import exp

from storage.errors import CorruptDataError, LakewardError
from storage.sql.errors import SqlError, position, suggestion
from storage.sql.relations import view_of
from storage.table.scan.row_scan import EngineScan

_SAFE = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "allow_unsigned_extensions": "false",
    "python_enable_replacements": "false",
}
_MISSING_COLUMN = re.compile(
    r'(?:Referenced (?:column|table)|does not have a column named) "([^"]+)"'
)
_MISSING_FUNCTION = re.compile(r"Function with name ([\w.]+) does not exist")
_SUGGESTED = re.compile(r'Did you mean "([^"]+)"|Candidate bindings: (.+)')
_UNDECODABLE = re.compile(
    "TProtocolException|Failed to read file|Out of buffer|Parquet (file|reader)|[Cc]orrupt"
)
"""Errors of DuckDB's Parquet reader on pages whose checksum is right and whose header is not."""
_ROWS_PER_BATCH = 65_536
_MOST_INSTANCES = 4
_INSTANCES: dict[tuple[int, str | None, tuple[str, ...]], duckdb.DuckDBPyConnection] = {}
"""By process, zone and files."""
_STARTING = threading.Lock()

Relations = Mapping[str, Any]
"""By name in the query: objects with Arrow's stream interface, of which an `EngineScan` may leave
files to DuckDB."""


class Watcher(Protocol):
    """A client that may interrupt a query, and shows its progress."""

    def watch(self, statement: Any) -> None:
        """Take the connection that runs a query; None: it has ended."""

    def count_rows(self, rows: int) -> None:
        """Rows were read of a table."""


def _unwatched(rows: int) -> None:
    del rows


class _Source:
    """Rows for DuckDB; keeps the error that reading them raised."""

    def __init__(
        self, rows: Any, failures: list[BaseException], on_rows: Callable[[int], None]
    ) -> None:
        self._rows = rows
        self._failures = failures
        self._on_rows = on_rows

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Arrow's PyCapsule stream interface; a new stream each time."""
        rows = self._rows
        if isinstance(rows, pa.Table | pa.RecordBatchReader):
            return rows.__arrow_c_stream__(requested_schema)
        reader = pa.RecordBatchReader.from_batches(rows.schema, self._batches())
        return reader.__arrow_c_stream__(requested_schema)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        try:
            for batch in self._rows.to_batches():
                self._on_rows(batch.num_rows)
                yield _without_offsets(batch)
        except GeneratorExit:  # the query ended before the rows
            raise
        except BaseException as error:
            self._failures.append(error)
            raise


def _without_offsets(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows; DuckDB refuses rows within rows that are slices of longer arrays."""
    columns = [
        pa.concat_arrays([column, column.slice(0, 0)]) if _has_rows_in_rows(column.type) else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _has_rows_in_rows(type_: pa.DataType) -> bool:
    children = [type_.field(i).type for i in range(type_.num_fields)]
    return any(pa.types.is_nested(child) for child in children)


def connect(
    time_zone: str | None = None, relations: Relations | None = None
) -> duckdb.DuckDBPyConnection:
    """A connection that reaches nothing but what is registered in it, and files of its relations.

    Connections of a zone and the same files share an instance of DuckDB, which takes 20 ms to
    start, and nothing else: what is registered in one is not visible in another. A forked process
    starts its own.

    Args:
        time_zone: of texts of instants; None: the machine's.
        relations: of the query.
    """
    scans = (rows for rows in (relations or {}).values() if isinstance(rows, EngineScan))
    files = tuple(sorted({path for scan in scans for path in scan.files}))
    key = (os.getpid(), time_zone, files)
    with _STARTING:
        if key not in _INSTANCES:
            if len(_INSTANCES) >= _MOST_INSTANCES:
                _INSTANCES.clear()  # those in use live as long as their connections
            _INSTANCES[key] = _start(time_zone, files)
        return _INSTANCES[key].cursor()


def machine_zone() -> str:
    """The time zone of a session that sets none."""
    with connect() as connection:
        ((zone,),) = connection.execute("SELECT current_setting('TimeZone')").fetchall()
    return str(zone)


def _start(time_zone: str | None, files: Sequence[str]) -> duckdb.DuckDBPyConnection:
    instance = duckdb.connect(config=dict(_SAFE))
    instance.execute("SET allowed_paths = ?", [list(files)])
    instance.execute("SET enable_external_access = false")
    if time_zone is not None:
        try:
            instance.execute("SET GLOBAL TimeZone = ?", [time_zone])
        except duckdb.Error as error:
            instance.close()
            raise SqlError("there is no such time zone", zone=time_zone) from error
    instance.execute("SET lock_configuration = true")
    return instance


def run(
    connection: duckdb.DuckDBPyConnection,
    text: str,
    relations: Relations,
    tree: exp.Expr,
    columns: Collection[str] = (),
    watcher: "Watcher | None" = None,
) -> pa.RecordBatchReader:
    """The rows of a query; closes the connection at the end of the rows.

    Args:
        connection: as of `connect` with these relations; closed by the reader.
        text: in DuckDB's SQL.
        relations: its tables by name.
        tree: of the statement, for the places of errors.
        columns: names of the columns of its tables, for suggestions.
        watcher: follows the connection and the rows read.

    Raises:
        SqlError: DuckDB refuses the query.
        LakewardError: as of reading the tables.
    """
    failures: list[BaseException] = []
    on_rows = _unwatched if watcher is None else watcher.count_rows
    statement = _RunningStatement(connection)
    if watcher is not None:
        watcher.watch(statement)
    try:
        statement.verify(relations)
        _register(connection, relations, failures, on_rows)
        rows = connection.sql(text)
        types, reader = rows.types, rows.to_arrow_reader(_ROWS_PER_BATCH)
    except duckdb.Error as error:
        connection.close()
        _look_for_files(relations, failures)
        raise _error_of(error, failures, tree, columns) from error
    except BaseException:
        connection.close()
        raise
    schema = pa.schema(map(_plain, reader.schema, types))

    def batches() -> Iterator[pa.RecordBatch]:
        try:
            for batch in reader:
                yield batch if batch.schema == schema else batch.cast(schema)
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            # Arrow's stream raises DuckDB's later errors as an OSError
            _look_for_files(relations, failures)
            raise _error_of(error, failures, tree) from error
        finally:
            connection.close()
            if watcher is not None:
                watcher.watch(None)

    return pa.RecordBatchReader.from_batches(schema, batches())


def explained(
    connection: duckdb.DuckDBPyConnection,
    text: str,
    relations: Relations,
    tree: exp.Expr,
    columns: Collection[str] = (),
) -> list[str]:
    """The plan of a query, as lines; arguments and errors as of `run`."""
    try:
        _register(connection, relations, [], _unwatched)
        result = connection.execute(f"EXPLAIN {text}").fetchall()
    except duckdb.Error as error:
        raise _error_of(error, [], tree, columns) from error
    finally:
        connection.close()
    return str(result[0][-1]).splitlines()


class _RunningStatement:
    """What a client may interrupt: the verification of files, then DuckDB."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        self._stop = threading.Event()

    def interrupt(self) -> None:
        self._stop.set()
        self._connection.interrupt()

    def verify(self, relations: Relations) -> None:
        for rows in relations.values():
            if isinstance(rows, EngineScan):
                rows.verify(self._stop.is_set)
        if self._stop.is_set():
            raise SqlError("the statement was cancelled")


def _register(
    connection: duckdb.DuckDBPyConnection,
    relations: Relations,
    failures: list[BaseException],
    on_rows: Callable[[int], None],
) -> None:
    for name, rows in relations.items():
        if not (isinstance(rows, EngineScan) and rows.files):
            connection.register(name, _Source(rows, failures, on_rows))
            continue
        remainder = f"{name}_rest"
        if not rows.complete:
            connection.register(remainder, _Source(rows, failures, on_rows))
        connection.execute(f"CREATE TEMP VIEW {name} AS {view_of(rows, remainder)}")


def _look_for_files(relations: Relations, failures: list[BaseException]) -> None:
    """Name a file that went missing while DuckDB read it as the cause of its error."""
    try:
        for rows in relations.values():
            if isinstance(rows, EngineScan):
                rows.look_for_files()
    except (LakewardError, OSError) as error:
        failures.append(error)


def _plain(field: pa.Field, type_: object) -> pa.Field:
    """Sums of integers are BIGINT, as in Flink and Spark; DuckDB widens them to HUGEINT."""
    return field.with_type(pa.int64()) if str(type_) == "HUGEINT" else field


def _error_of(
    error: Exception, failures: list[BaseException], tree: exp.Expr, columns: Collection[str] = ()
) -> BaseException:
    """The error to raise: that of the scan that failed, else DuckDB's, reworded."""
    if failures:
        return failures[0]
    text = str(error)
    message, _, rest = text.partition("\n")
    if _UNDECODABLE.search(message):
        return CorruptDataError("a data file cannot be decoded", detail=message)
    if isinstance(error, duckdb.InterruptException) or text.startswith("INTERRUPT Error"):
        return SqlError("the statement was cancelled")
    for pattern, what in ((_MISSING_COLUMN, "column"), (_MISSING_FUNCTION, "function")):
        match = pattern.search(text)
        if match:
            return _missing_name_error(what, match[1], text, tree, columns)
    kind, _, plain = message.partition(": ")
    del rest
    return SqlError(
        "the query cannot run", detail=(plain or kind).strip().rstrip("."), **_place(tree, text)
    )


def _missing_name_error(
    what: str, name: str, text: str, tree: exp.Expr, columns: Collection[str]
) -> LakewardError:
    node = next(
        (
            part
            for part in tree.walk()
            if isinstance(part, exp.Identifier | exp.Func) and part.name.lower() == name.lower()
        ),
        None,
    )
    hint, otherwise = "", "there are {}"
    if what == "function":
        otherwise = "see the functions of Spark's SQL"
    if what == "column" and columns:
        names = sorted(column for column in columns if not column.startswith("_LAKEWARD_"))
        hint = suggestion(name, names, f"there are {', '.join(names[:20])}")
        text = ""
    for match in _SUGGESTED.finditer(text):
        names = [part.strip(' "').rpartition(".")[2] for part in (match[1] or match[2]).split(",")]
        hint = suggestion(name, names, otherwise.format(", ".join(names)))
    return SqlError(f"there is no such {what}", hint=hint, name=name, **position(node))


def _place(tree: exp.Expr, text: str) -> dict[str, Any]:
    """The first name of the statement that DuckDB's message quotes."""
    quoted = {name.lower() for name in re.findall(r'"([^"]+)"', text)}
    for node in tree.find_all(exp.Identifier):
        if node.name.lower() in quoted:
            return position(node)
    return {}
