# SPDX-License-Identifier: Apache-2.0
"""Apache Paimon's Java implementation, driven through its table API in a JVM of its own.

No Spark and no Flink runs: py4j (which comes with pyspark) calls the classes of the release that
`artifacts.CORE` names. Rows travel as Parquet files: what Java is to write is put into one, what
Java reads it writes into another one with its own Parquet writer, read here by plain pyarrow; so no
value is converted by code of these tests.
"""

import contextlib
import functools
import itertools
import json
import pathlib
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JJavaError

from storage.format.files.file_formats import open_sink
from storage.format.metadata.schema import TableSchema
from storage.format.metadata.schema_changes import (
    AddColumn,
    DropColumn,
    MoveColumn,
    RenameColumn,
    SchemaChange,
    SetOption,
    UpdateNullability,
    UpdateType,
)
from storage.format.types.types import DataField, DataType, arrow_type, parse_type, type_to_json
from storage.table.scan.predicate import Predicate
from tests.interop import artifacts
from tests.interop.java_predicates import JavaPredicates

__all__ = ["JavaPeer", "Rows"]

Rows = Sequence[tuple[str, tuple[Any, ...]]]
"""Rows as kind (`+I`, `-D`, …) and values that `pyarrow.array` takes for the column's type."""

KINDS = {"+I": 0, "-U": 1, "+U": 2, "-D": 3}
KIND_COLUMN = "__kind"
BESIDE = (
    "hadoop-client-api-*",
    "hadoop-client-runtime-*",
    "slf4j-api-*",
    "jcl-over-slf4j-*",
    "snappy-java-*",
    "zstd-jni-*",
    "lz4-java-*",
    "rocksdbjni-*",
    "py4j-*",
)
"""Jars of pyspark that Paimon expects around it."""
JVM = ("-Xmx1g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class JavaPeer:
    """One JVM and one warehouse.

    Protocol: made by `running`; any calls; the JVM ends with the context. Tables are named
    `database.table`.
    """

    def __init__(
        self,
        gateway: JavaGateway,
        warehouse: pathlib.Path,
        scratch: pathlib.Path,
        zone: str,
        catalog: Mapping[str, str],
    ) -> None:
        self.zone = zone
        self._gateway = gateway
        self._scratch = scratch
        self._commits = itertools.count(1)
        self._paimon = gateway.jvm.org.apache.paimon
        self._parquet = self._paimon.format.FileFormat.fromIdentifier(
            "parquet", self._paimon.options.Options()
        )
        self._file_io = self._paimon.fs.local.LocalFileIO.create()
        self._disk = self._paimon.disk.IOManager.create(str(scratch))
        self._kinds = [self._paimon.types.RowKind.fromByteValue(n) for n in range(4)]
        self.warehouse = warehouse
        options = self._paimon.options.Options()
        options.set("warehouse", f"file://{warehouse}")
        options.set("cache-enabled", "false")  # others change the tables, too
        for key, value in catalog.items():
            options.set(key, value)
        self._catalog = self._paimon.catalog.CatalogFactory.createCatalog(
            self._paimon.catalog.CatalogContext.create(options)
        )
        self._catalog.createDatabase("db", True)

    # ------------------------------------------------------------------------- life of the JVM

    @staticmethod
    @contextlib.contextmanager
    def running(
        warehouse: pathlib.Path,
        zone: str = "UTC",
        catalog: Mapping[str, str] | None = None,
        jars: Sequence[pathlib.Path] = (),
    ) -> Iterator["JavaPeer"]:
        """A JVM in a time zone for as long as the context lasts.

        Args:
            warehouse: of the catalog.
            zone: of the JVM.
            catalog: options of the catalog; None: the filesystem's.
            jars: on the class path besides Paimon's.

        Raises:
            ArtifactUnavailableError: the jar is not there.
        """
        spark_jars = pathlib.Path(pyspark.__file__).parent / "jars"
        beside = [str(path) for name in BESIDE for path in spark_jars.glob(f"{name}.jar")]
        core = artifacts.jar(artifacts.CORE, fetch=False)
        classpath = [str(core), *map(str, jars), *beside]
        port = launch_gateway(
            classpath=":".join(classpath),
            jarpath=beside[-1],
            javaopts=[*JVM, f"-Duser.timezone={zone}"],
            die_on_exit=True,
        )
        gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auto_convert=True))
        scratch = pathlib.Path(tempfile.mkdtemp(prefix="lakeward-java-"))
        try:
            yield JavaPeer(gateway, warehouse, scratch, zone, catalog or {})
        finally:
            gateway.shutdown()
            gateway.java_process.wait(30) if gateway.java_process else None
            shutil.rmtree(scratch, ignore_errors=True)

    # ----------------------------------------------------------------------------- catalog

    def names(self, database: str) -> list[str]:
        """The tables of a database."""
        return sorted(self._catalog.listTables(database))

    def databases(self) -> list[str]:
        """The databases."""
        return sorted(self._catalog.listDatabases())

    def properties(self, database: str) -> dict[str, str]:
        """Properties of a database."""
        return dict(self._catalog.getDatabase(database).options())

    def rename(self, old: str, new: str) -> None:
        """Rename a table."""
        self._catalog.renameTable(self._identifier(old), self._identifier(new), False)

    def drop(self, name: str) -> None:
        """Drop a table."""
        self._catalog.dropTable(self._identifier(name), False)

    def view(self, name: str) -> tuple[str, dict[str, str], list[str]]:
        """Query, dialects and columns of a view."""
        view = self._catalog.getView(self._identifier(name))
        return view.query(), dict(view.dialects()), list(view.rowType().getFieldNames())

    def create_view(self, name: str, query: str) -> None:
        """Make a view of one column `k`."""
        fields = self._gateway.jvm.java.util.ArrayList()
        fields.add(self._paimon.types.DataField(0, "k", self._paimon.types.DataTypes.INT()))
        view = self._paimon.view.ViewImpl(self._identifier(name), fields, query, {}, None, {})
        self._catalog.createView(self._identifier(name), view, False)

    def partitions(self, name: str) -> list[dict[str, str]]:
        """Partitions of a table, as the catalog lists them."""
        return [dict(one.spec()) for one in self._catalog.listPartitions(self._identifier(name))]

    # ------------------------------------------------------------------------------ schema

    def create(self, name: str, schema: TableSchema) -> None:
        """Create a table with Java's own field ids."""
        text = schema.to_json().decode()
        found = self._paimon.schema.TableSchema.fromJson(text).toSchema()
        self._catalog.createTable(self._identifier(name), found, False)

    def alter(self, name: str, changes: Sequence[SchemaChange]) -> None:
        """Change the schema."""
        found = [self._change(change) for change in changes]
        self._catalog.alterTable(self._identifier(name), found, False)

    def _change(self, change: SchemaChange) -> Any:
        make = self._paimon.schema.SchemaChange
        moves = getattr(self._gateway.jvm.org.apache.paimon.schema, "SchemaChange$Move")
        match change:
            case AddColumn():
                steps = (change.name,) if isinstance(change.name, str) else change.name
                move = moves.first(steps[-1]) if change.first else None
                if change.after is not None:
                    move = moves.after(steps[-1], change.after)
                return make.addColumn(self._path(change.name), self._type(change.type), None, move)
            case DropColumn():
                return make.dropColumn(self._path(change.name))
            case RenameColumn():
                return make.renameColumn(self._path(change.name), change.new_name)
            case UpdateType():
                return make.updateColumnType(
                    self._path(change.name), self._type(change.type), False
                )
            case UpdateNullability():
                return make.updateColumnNullability(self._path(change.name), change.nullable)
            case MoveColumn():
                name = change.name if isinstance(change.name, str) else change.name[0]
                move = moves.first(name) if change.first else moves.after(name, change.after)
                return make.updateColumnPosition(move)
            case SetOption():
                return make.setOption(change.key, change.value)
            case _:
                raise NotImplementedError(change)

    def _path(self, name: str | tuple[str, ...]) -> Any:
        steps = (name,) if isinstance(name, str) else name
        array = self._gateway.new_array(self._gateway.jvm.java.lang.String, len(steps))
        for position, step in enumerate(steps):
            array[position] = step
        return array

    def _type(self, type_: DataType) -> Any:
        """A Java type, through the schema of a table with that one column."""
        column = {"id": 0, "name": "c", "type": type_to_json(type_)}
        schema = {"version": 3, "id": 0, "fields": [column], "highestFieldId": 1000}
        schema |= {"partitionKeys": [], "primaryKeys": [], "options": {}, "timeMillis": 0}
        parsed = self._paimon.schema.TableSchema.fromJson(json.dumps(schema))
        return parsed.logicalRowType().getTypeAt(0)

    # ------------------------------------------------------------------------------- writing

    def write(
        self,
        name: str,
        rows: Rows,
        *,
        compaction: bool = True,
        full: bool = False,
        asked: str | None = None,
        flushed: Sequence[int] = (),
    ) -> None:
        """Write rows and commit.

        Args:
            name: of the table.
            rows: in arrival order.
            compaction: whether to compact what is due; otherwise the writer only appends.
            full: compact the buckets written to completely, in the same commit.
            asked: `minor` or `full` compaction of every bucket, in the same commit.
            flushed: numbers of rows after which a minor compaction of every bucket is asked for.
        """
        table = self._table(name, {} if compaction else {"write-only": "true"})
        user = f"java-{next(self._commits)}"
        touched: dict[tuple[bytes, int], Any] = {}
        with self._writer(table, user) as write:
            route = self._router(table, user, write)
            if asked is not None or flushed:
                for entry in list(table.newSnapshotReader().bucketEntries()):
                    partition = entry.partition()
                    touched[(bytes(partition.toBytes()), entry.bucket())] = partition
            for number, row in enumerate(self._rows(name, table, rows)):
                if number in flushed:
                    for (_, bucket), partition in touched.items():
                        write.compact(partition, bucket, False)
                partition, bucket = route(row)
                if full or flushed or asked is not None:
                    touched[(bytes(partition.toBytes()), bucket)] = partition.copy()
            for (_, bucket), partition in touched.items() if full or asked is not None else ():
                write.compact(partition, bucket, full or asked == "full")
            self._commit(table, user, write.prepareCommit(True, 1))

    def compact(self, name: str, *, full: bool = True) -> None:
        """Compaction of every bucket; of append tables without buckets, of all files together.

        Args:
            name: of the table.
            full: merge everything; otherwise what is due, and level 0 where vectors need it.
        """
        table = self._table(name, {"write-only": "false", "compaction.min.file-num": "2"})
        user = f"java-{next(self._commits)}"
        if table.bucketMode().name() == "BUCKET_UNAWARE":
            self._compact_files(table, user)
            return
        with self._writer(table, user) as write:
            for entry in list(table.newSnapshotReader().bucketEntries()):
                write.compact(entry.partition(), entry.bucket(), full)
            self._commit(table, user, write.prepareCommit(True, 1))

    def _compact_files(self, table: Any, user: str) -> None:
        coordinator = self._paimon.append.AppendCompactCoordinator(table, False)
        write = table.store().newWrite(user)
        try:
            tasks = list(coordinator.run())
        except Py4JJavaError as error:
            if not str(error.java_exception).endswith("EndOfScanException"):
                raise
            tasks = []  # no file is worth it
        messages = [task.doCompact(table, write) for task in tasks]
        write.close()
        if messages:
            self._commit(table, user, messages)

    def delete(self, name: str, column: str, doomed: Iterable[Any]) -> None:
        """Delete the rows of an append table where a column has one of these values."""
        gone = set(doomed)
        table = self._table(name)
        position = list(table.rowType().getFieldNames()).index(column)
        snapshot = table.snapshotManager().latestSnapshot()
        handler = table.store().newIndexFileHandler()
        maintainers = self._paimon.deletionvectors.append.BaseAppendDeleteFileMaintainer
        messages = []
        for split in self._splits(table):
            if table.bucketMode().name() == "BUCKET_UNAWARE":
                maintainer = maintainers.forUnawareAppend(handler, snapshot, split.partition())
            else:
                maintainer = maintainers.forBucketedAppend(
                    handler, snapshot, split.partition(), split.bucket()
                )
            for file in list(split.dataFiles()):
                vector = self._doomed(table, split, file, position, gone)
                if not vector.isEmpty():
                    maintainer.notifyNewDeletionVector(file.fileName(), vector)
            messages += self._index_message(maintainer)
        if messages:
            self._commit(table, f"java-{next(self._commits)}", messages)

    def _doomed(self, table: Any, split: Any, file: Any, position: int, gone: set[Any]) -> Any:
        wide = str(table.options().get("deletion-vectors.bitmap64")) == "true"
        vectors = self._paimon.deletionvectors
        vector = vectors.Bitmap64DeletionVector() if wide else vectors.BitmapDeletionVector()
        if split.deletionFiles().isPresent():
            names = [each.fileName() for each in list(split.dataFiles())]
            known = split.deletionFiles().get()[names.index(file.fileName())]
            if known is not None:
                vector.merge(vectors.DeletionVector.read(self._file_io, known))
        builder = self._paimon.table.source.DataSplit.builder()
        builder.withSnapshot(split.snapshotId()).withPartition(split.partition())
        builder.withBucket(split.bucket()).withBucketPath(split.bucketPath())
        one = builder.withDataFiles([file]).rawConvertible(True).build()
        for number, row in enumerate(self._iterate(self._reader(table).createReader(one))):
            if row.getLong(position) in gone:
                vector.delete(number)
        return vector

    def _index_message(self, maintainer: Any) -> list[Any]:
        added: list[Any] = []
        removed: list[Any] = []
        for entry in list(maintainer.persist()):
            (added if entry.kind().name() == "ADD" else removed).append(entry.indexFile())
        if not added and not removed:
            return []
        io = self._paimon.io
        return [
            self._paimon.table.sink.CommitMessageImpl(
                maintainer.getPartition(),
                maintainer.getBucket(),
                None,
                io.DataIncrement([], [], [], added, removed),
                io.CompactIncrement.emptyIncrement(),
            )
        ]

    @contextlib.contextmanager
    def _writer(self, table: Any, user: str) -> Iterator[Any]:
        write = table.newWrite(user).withIOManager(self._disk)
        try:
            yield write
        finally:
            write.close()

    def _commit(self, table: Any, user: str, messages: Any) -> None:
        commit = table.newCommit(user)
        commit.commit(1, messages)
        commit.close()

    def _router(self, table: Any, user: str, write: Any) -> Any:
        """Writes one row; returns its partition and bucket."""
        if table.bucketMode().name() != "HASH_DYNAMIC":

            def fixed(row: Any) -> tuple[Any, int]:
                place = write.getPartition(row), write.getBucket(row)
                write.write(row)
                return place

            return fixed
        options = table.coreOptions()
        assigner = self._paimon.index.HashBucketAssigner(
            table.snapshotManager(),
            user,
            table.store().newIndexFileHandler(),
            1,
            1,
            0,
            options.dynamicBucketTargetRowNum(),
            options.dynamicBucketMaxBuckets(),
        )
        keys = self._paimon.table.sink.RowPartitionKeyExtractor(table.schema())

        def dynamic(row: Any) -> tuple[Any, int]:
            partition = keys.partition(row)
            bucket = assigner.assign(partition, keys.trimmedPrimaryKey(row).hashCode())
            write.write(row, bucket)
            return partition, bucket

        return dynamic

    def _rows(self, name: str, table: Any, rows: Rows) -> Iterator[Any]:
        """Java rows with their kinds, each valid until the next one."""
        fields = self._fields(table)
        path = self._scratch / "in.parquet"
        layout = [*fields, DataField(id=2**20, name=KIND_COLUMN, type=parse_type("INT NOT NULL"))]
        columns = [
            pa.array([values[i] for _, values in rows], arrow_type(field.type))
            for i, field in enumerate(fields)
        ]
        columns.append(pa.array([KINDS[kind] for kind, _ in rows], pa.int32()))
        with path.open("wb") as output:
            sink = open_sink("parquet", output, layout)
            if rows:
                sink.write(columns)
            sink.close()
        types = self._paimon.types
        kind = types.DataField(2**20, KIND_COLUMN, types.IntType(False))
        row_type = types.RowType(False, [*table.rowType().getFields(), kind])
        factory = self._parquet.createReaderFactory(row_type, row_type, [])
        reader = factory.createReader(
            self._paimon.format.FormatReaderContext(
                self._file_io, self._paimon.fs.Path(f"file://{path}"), path.stat().st_size
            )
        )
        positions = self._gateway.new_array(self._gateway.jvm.int, len(fields))
        for position in range(len(fields)):
            positions[position] = position
        view = getattr(self._paimon.utils.ProjectedRow, "from")(positions)
        for row in self._iterate(reader):
            wanted = view.replaceRow(row)
            wanted.setRowKind(self._kinds[row.getInt(len(fields))])
            yield wanted

    # ------------------------------------------------------------------------------- reading

    def read(
        self,
        name: str,
        options: Mapping[str, str] | None = None,
        condition: Predicate | None = None,
    ) -> pa.Table:
        """Rows of the newest snapshot, or of the one that the options choose.

        Args:
            name: of the table, perhaps with `$branch_…`.
            options: of the reader.
            condition: what rows, with literals in the comparable form; None: all.
        """
        table = self._table(name, options or {})
        return _conformed(self.rows(table, condition), self._fields(table))

    @property
    def paimon(self) -> Any:
        """Java's package `org.apache.paimon`."""
        return self._paimon

    def table(self, name: str, options: Mapping[str, str] | None = None) -> Any:
        """Java's object; system tables have one, too."""
        return self._table(name, options)

    def rows(self, table: Any, condition: Predicate | None = None) -> pa.Table:
        """Rows of Java's object, in the types that plain pyarrow finds in Java's Parquet file."""
        builder = self._paimon.table.source.ReadBuilderImpl(table)
        if condition is not None:
            fields = self._fields(table)
            builder.withFilter(JavaPredicates(self._gateway, table.rowType(), fields).of(condition))
        reader = builder.newRead().executeFilter().withIOManager(self._disk)
        return self._taken(table, reader, builder.newScan().plan().splits())

    def changes(self, name: str) -> list[pa.Table]:
        """What a streaming read from the first snapshot on gives, a table per step of it.

        The columns are `rowkind` and those of the table; steps without rows are left out.
        """
        table = self._table(f"{name}$audit_log")
        builder = self._paimon.table.source.ReadBuilderImpl(table)
        reader = builder.newRead().withIOManager(self._disk)
        scan = builder.newStreamScan()
        scan.restore(1)
        fields = self._fields(self._table(name))
        found = []
        while splits := list(scan.plan().splits()):
            step = self._taken(table, reader, splits)
            values = _conformed(step, fields)
            found.append(values.add_column(0, "rowkind", step.column("rowkind")))
        return [step for step in found if step.num_rows]

    def _taken(self, table: Any, reader: Any, splits: Any) -> pa.Table:
        """The rows of splits, by way of a Parquet file that Java writes."""
        path = self._scratch / "out.parquet"
        path.unlink(missing_ok=True)
        output = self._file_io.newOutputStream(self._paimon.fs.Path(f"file://{path}"), True)
        writer = self._parquet.createWriterFactory(table.rowType()).create(output, "zstd")
        take = self._taker(writer)
        for split in list(splits):
            rows = self._paimon.reader.RecordReaderIterator(reader.createReader(split))
            take(rows)
            rows.close()
        writer.close()
        output.close()
        return pq.read_table(path)

    def fields(self, name: str, options: Mapping[str, str] | None = None) -> list[DataField]:
        """The columns, as Java knows them; of the snapshot that the options choose, if any."""
        return self._fields(self._table(name, options))

    def snapshots(self, name: str) -> list[int]:
        """Ids of the snapshots that Java finds."""
        found = self._table(name).snapshotManager().safelyGetAllSnapshots()
        return sorted(snapshot.id() for snapshot in list(found))

    def _taker(self, writer: Any) -> Callable[[Any], None]:
        """Gives all rows of an iterator to a writer, in Java."""
        java = self._gateway.jvm.java.lang
        load = java.Class.forName
        row = load("org.apache.paimon.data.InternalRow")
        kind = java.invoke.MethodType.methodType(java.Void.TYPE, row)
        add = java.invoke.MethodHandles.publicLookup().findVirtual(
            load("org.apache.paimon.format.FormatWriter"), "addElement", kind
        )
        consumer = load("java.util.function.Consumer")
        proxies = java.invoke.MethodHandleProxies
        adder = self._array(java.Object, proxies.asInterfaceInstance(consumer, add.bindTo(writer)))
        # by reflection, because py4j does not find methods that an interface implements
        every = load("java.util.Iterator").getMethod(
            "forEachRemaining", self._array(java.Class, consumer)
        )
        return lambda rows: every.invoke(rows, adder)

    def _array(self, type_: Any, item: Any) -> Any:
        array = self._gateway.new_array(type_, 1)
        array[0] = item
        return array

    def _reader(self, table: Any) -> Any:
        builder = self._paimon.table.source.ReadBuilderImpl(table)
        return builder.newRead().withIOManager(self._disk)

    def _splits(self, table: Any) -> list[Any]:
        builder = self._paimon.table.source.ReadBuilderImpl(table)
        return list(builder.newScan().plan().splits())

    def _iterate(self, reader: Any) -> Iterator[Any]:
        rows = self._paimon.reader.RecordReaderIterator(reader)
        try:
            while rows.hasNext():
                yield rows.next()
        finally:
            rows.close()

    # ---------------------------------------------------------------------- tags and branches

    def create_tag(self, name: str, tag: str) -> None:
        """Tag the newest snapshot."""
        self._table(name).createTag(tag)

    def create_branch(self, name: str, branch: str, tag: str) -> None:
        """A branch that starts at a tag."""
        self._table(name).createBranch(branch, tag)

    # --------------------------------------------------------------------------------- parts

    def _identifier(self, name: str) -> Any:
        return self._paimon.catalog.Identifier.create(*name.split(".", 1))

    def _table(self, name: str, options: Mapping[str, str] | None = None) -> Any:
        table = self._catalog.getTable(self._identifier(name))
        return table.copy(dict(options)) if options else table

    @staticmethod
    def _fields(table: Any) -> list[DataField]:
        text = table.schema().toString()
        return list(_schema_of(text).fields)


@functools.cache
def _schema_of(text: str) -> TableSchema:
    return TableSchema.from_json(text.encode())


def _conformed(found: pa.Table, fields: Sequence[DataField]) -> pa.Table:
    """What plain pyarrow read, in the Arrow types that Lakeward gives the columns."""
    schema = pa.schema([pa.field(field.name, arrow_type(field.type)) for field in fields])
    return found.select(schema.names).cast(schema)
