# SPDX-License-Identifier: Apache-2.0
"""Statements that change rows: INSERT, DELETE, UPDATE, MERGE, TRUNCATE, DROP PARTITION.

DuckDB evaluates conditions and values, over the rows of the table with their addresses; the rows
are changed by methods of the table, which Python users call as well. Columns that
a statement does not set never pass through DuckDB.
"""

import copy
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
from sqlglot import exp

from storage.errors import NotFoundError
from storage.format.types.types import DataType, RowKind, RowType
from storage.sql import engine
from storage.sql.errors import locate, refuse, suggestion
from storage.sql.inserting import column_of, target_table, value_or_default
from storage.sql.nodes import DropPartition, Truncate
from storage.sql.pushdown import conjuncts
from storage.sql.query import plan_query, query_rows, time_zone
from storage.table.scan.predicate import And, Compare, IsNull, Op, Or, Predicate, both
from storage.table.scan.scan import ChangeSplit
from storage.table.table import FileStoreTable
from storage.table.write.drop_partitions import chosen_partitions, live_partitions
from storage.table.write.rows.row_changes import ChangeResult, When, check_clauses, partners_of
from storage.table.write.rows.target_rows import (
    ACTION,
    ROW,
    RowAction,
    require_deletable,
    require_updatable,
)

if TYPE_CHECKING:
    from storage.sql.session import SqlSession

# The SET of UPDATE and MERGE: values of columns, and of fields of rows (`SET a.city = …`).
#
# A row of which fields are set is built from those values and its other fields, as in Spark: where
# the row was null, its other fields are null.


@dataclasses.dataclass(frozen=True, slots=True)
class _Assignment:
    """The value of a column, or of the field of a row that a path of names leads to."""

    path: tuple[exp.Identifier, ...]
    value: exp.Expr

    @property
    def remainder(self) -> "_Assignment":
        return _Assignment(self.path[1:], self.value)


def assignments(table: FileStoreTable, node: exp.Update, name: str) -> dict[str, exp.Expr]:
    """Columns and values of SET.

    Args:
        name: of the table in the statement.

    Raises:
        SqlError: there is no such column or field, or one is set twice.
    """
    if not node.expressions:
        refuse("SET is not complete", node, hint="write SET column = value")
    groups: dict[str, list[_Assignment]] = {}
    for item in node.expressions:
        assignment = _assignment(item, name)
        column = column_of(table, exp.Column(this=assignment.path[0]))
        groups.setdefault(column, []).append(assignment.remainder)
    return {
        column: _value(
            exp.column(column, table=name, quoted=True),
            table.schema.field(column).type,
            group,
            node,
        )
        for column, group in groups.items()
    }


def _assignment(node: exp.Expr, name: str) -> _Assignment:
    """What `column = value` or `row.field = value` sets; the name of the table may come first."""
    if not isinstance(node, exp.EQ) or not isinstance(node.this, exp.Column | exp.Dot):
        refuse("SET takes column = value", node)
    for aggregate in node.expression.find_all(exp.AggFunc):
        if aggregate.find_ancestor(exp.Query, exp.Window) is None:
            refuse("aggregates are not allowed here", aggregate, hint="write (SELECT … FROM …)")
    target = node.this
    if isinstance(target, exp.Column) and target.table.lower() == name.lower():
        path = [target.this]
    else:
        path = list(target.parts)
        if len(path) > 1 and path[0].name.lower() == name.lower():
            path = path[1:]
    return _Assignment(tuple(path), value_or_default(node.expression))


def _value(
    current: exp.Expr, type_: DataType, group: Sequence[_Assignment], node: exp.Expr
) -> exp.Expr:
    """The new value of a column or field of which parts are set."""
    if any(not assignment.path for assignment in group):
        if len(group) > 1:
            refuse("a column is set twice", node)
        return group[0].value
    step_name = group[0].path[0]
    if not isinstance(type_, RowType):
        refuse("only rows have fields that can be set", step_name, name=step_name.name)
    names = [field.name for field in type_.fields]
    by_name: dict[str, list[_Assignment]] = {}
    for assignment in group:
        step = assignment.path[0]
        match = next((field for field in names if field.lower() == step.name.lower()), None)
        if match is None:
            hint = suggestion(step.name, names, f"the row has {', '.join(names)}")
            refuse("there is no such field", step, hint=hint, name=step.name)
        by_name.setdefault(match, []).append(assignment.remainder)
    fields = []
    for field in type_.fields:
        part: exp.Expr = exp.Dot(
            this=current.copy(), expression=exp.to_identifier(field.name, quoted=True)
        )
        if field.name in by_name:
            part = _value(part, field.type, by_name[field.name], node)
        fields.append(
            exp.PropertyEQ(this=exp.to_identifier(field.name, quoted=True), expression=part)
        )
    return exp.Struct(expressions=fields)


_TARGET = "$target"
"""Name of the target table in the text of a query; no table has this name."""

_SOURCE = "$source"
"""Name of the rows of a MERGE's source that were read."""

_MOST_SOURCE_ROWS = 1_000_000

_IN_SOURCE = "_LAKEWARD_IN_SOURCE"
"""Column that only rows of the source have."""

_USER = "sql"
_StatementT = TypeVar("_StatementT", bound=exp.Expr)


# ------------------------------------------------------------------------------ DELETE, UPDATE


def delete(session: "SqlSession", node: exp.Delete) -> int:
    """DELETE FROM; how many rows were deleted.

    Raises:
        SqlError: the condition is wrong.
        UnsupportedFeatureError: the table takes no deletes.
        As `change_rows`.
    """
    _refuse_clauses(node, "using", "order", "limit", "returning", "tables")
    node = _with_inside(node)
    table = target_table(session, node.this)
    require_deletable(table)
    where = node.args.get("where")
    if where is None and not table.schema.primary_keys:
        count = _count(table, ())
        table.truncate()
        return count
    return _change(session, node, table, where, [RowAction(RowKind.DELETE)], {}).row_count


def update(session: "SqlSession", node: exp.Update) -> int:
    """UPDATE … SET; how many rows were updated.

    Raises:
        SqlError: an expression is wrong.
        UnsupportedFeatureError: the table takes no updates.
        InvalidRequestError: a primary key would be updated, or a value does not fit.
        As `change_rows`.
    """
    _refuse_clauses(node, "from_", "order", "limit", "returning")
    node = _with_inside(node)
    table = target_table(session, node.this)
    name = node.this.alias_or_name
    values = assignments(table, node, name)
    require_updatable(table, values)
    action = RowAction(RowKind.UPDATE_AFTER, frozenset(values))
    return _change(session, node, table, node.args.get("where"), [action], values).row_count


def _change(
    session: "SqlSession",
    node: exp.Expr,
    table: FileStoreTable,
    where: exp.Where | None,
    actions: Sequence[RowAction],
    values: Mapping[str, exp.Expr],
) -> ChangeResult:
    """DELETE or UPDATE of the rows for which a condition is true."""
    name = node.this.alias_or_name
    query = exp.select(
        exp.column(ROW, quoted=True),
        exp.alias_(exp.cast(exp.Literal.number(0), "INT"), ACTION, quoted=True),
        *(_alias(unqualified(value, node.this), f"0.{column}") for column, value in values.items()),
    ).from_(_target_node(name))
    if where is not None:
        query = query.where(unqualified(where.this, node.this))
    return _run(session, node, table, query, actions)


def _alias(value: exp.Expr, name: str) -> exp.Alias:
    """A value under a name; also of a query, which sqlglot would name as a table."""
    return exp.Alias(this=value, alias=exp.to_identifier(name, quoted=True))


# --------------------------------------------------------------------------------------- MERGE


@dataclasses.dataclass(frozen=True, slots=True)
class _Clause:
    """One WHEN with its THEN."""

    when: When
    action: RowAction
    condition: exp.Expr | None
    values: Mapping[str, exp.Expr]


def merge(session: "SqlSession", node: exp.Merge) -> int:
    """MERGE INTO; how many rows were updated, deleted and inserted.

    Raises:
        SqlError: a clause or expression is wrong.
        UnsupportedFeatureError: the table takes no updates, or no deletes.
        InvalidRequestError: a row of the table matches several of the source, a primary key would
            be updated, or a value does not fit.
        As `change_rows`.
    """
    node = _with_inside(node)
    if node.args.get("using_cond") or not node.args.get("on"):
        refuse("MERGE needs a condition", node, hint="write ON t.key = s.key")
    table = target_table(session, node.this)
    source = node.args["using"]
    if not source.alias_or_name:
        refuse("the source needs a name", source, hint="write USING (SELECT …) AS s")
    if source.alias_or_name.lower() == node.this.alias_or_name.lower():
        refuse(
            "table and source have the same name", source, hint="give one an alias: USING t AS s"
        )
    names = session.query(exp.select("*").from_(source.copy()).limit(0)).schema.names
    clauses = [_clause(table, node, source, when, names) for when in node.args["whens"].expressions]
    check_clauses(table, [clause.when for clause in clauses], [clause.action for clause in clauses])
    query = _merge_query(table, node, source, source, clauses)
    rows = None
    if all(clause.when is not When.NOT_MATCHED_BY_SOURCE for clause in clauses):
        keys = dict(_join_keys(table, node, source))
        source_query = _merge_query(table, node, source, _source_node(source), clauses)
        rows = _SourceRows(session, source, keys, source_query) if keys else None
    actions = [clause.action for clause in clauses]
    return _run(session, node, table, query, actions, source=rows).row_count


def _join_keys(
    table: FileStoreTable, node: exp.Merge, source: exp.Expr
) -> Iterator[tuple[str, exp.Expr]]:
    """Columns of the table that ON compares for equality with a value of the source, with it."""
    by_fold = {name.lower(): name for name in table.schema.field_names}
    target, origin = node.this.alias_or_name.lower(), source.alias_or_name.lower()
    condition = unqualified(node.args["on"], node.this, source)
    for part in conjuncts(condition):
        if not isinstance(part, exp.EQ):
            continue
        for side, value in ((part.this, part.expression), (part.expression, part.this)):
            columns = list(value.find_all(exp.Column))
            if (
                isinstance(side, exp.Column)
                and side.table.lower() == target
                and side.name.lower() in by_fold
                and columns
                and all(column.table.lower() == origin for column in columns)
                and value.find(exp.Query) is None
            ):
                yield by_fold[side.name.lower()], value


def _source_node(source: exp.Expr) -> exp.Table:
    alias = exp.TableAlias(this=exp.to_identifier(source.alias_or_name, quoted=True))
    return exp.Table(this=exp.to_identifier(_SOURCE, quoted=True), alias=alias)


class _SourceRows:
    """The rows of a MERGE's source, read once per attempt to prune the files of the target.

    A source of many rows is read by the statement alone, and prunes nothing.
    """

    def __init__(
        self,
        session: "SqlSession",
        source: exp.Expr,
        keys: Mapping[str, exp.Expr],
        query: exp.Select,
    ) -> None:
        self.query = query
        self._session = session
        self._source = source
        self._keys = keys
        self.rows: pa.Table | None = None

    def take(self) -> pa.Table | None:
        """Read the rows again."""
        self.rows = None
        batches: list[pa.RecordBatch] = []
        with self._session.query(exp.select("*").from_(self._source.copy())) as reader:
            if len(set(reader.schema.names)) < len(reader.schema.names):
                return None
            for batch in reader:
                batches.append(batch)
                if sum(part.num_rows for part in batches) > _MOST_SOURCE_ROWS:
                    return None
            self.rows = pa.Table.from_batches(batches, reader.schema)
        return self.rows

    def partners(self, table: FileStoreTable) -> Predicate | None:
        """Read the rows; a predicate that every row of the table with a match satisfies."""
        rows = self.take()
        if rows is None:
            return None
        names = (_alias(value.copy(), name) for name, value in self._keys.items())
        query = exp.select(*names).from_(_source_node(self._source))
        key_rows = query_rows(self._session, query, rows)
        return partners_of(key_rows, table.schema.arrow_schema)


def _clause(
    table: FileStoreTable,
    node: exp.Merge,
    source: exp.Expr,
    when: exp.When,
    source_columns: Sequence[str],
) -> _Clause:
    kind = When.MATCHED
    if not when.args.get("matched"):
        by_source = bool(when.args.get("source"))
        kind = When.NOT_MATCHED_BY_SOURCE if by_source else When.NOT_MATCHED
    action, condition = when.args["then"], when.args.get("condition")
    row_kind, values = RowKind.DELETE, {}
    target = node.this.alias_or_name
    if isinstance(action, exp.Update):
        row_kind = RowKind.UPDATE_AFTER
        if any(isinstance(item, exp.Star) for item in action.expressions):
            values = _all_columns(table, source, source_columns, action)
        else:
            values = assignments(table, action, target)
    elif isinstance(action, exp.Insert):
        row_kind = RowKind.INSERT
        values = _inserted_values(table, source, source_columns, action, when)
    elif str(action.name).upper() != "DELETE":
        refuse("WHEN … THEN takes UPDATE, DELETE or INSERT", when)
    sides = {target.lower(), source.alias_or_name.lower()}
    side = {When.NOT_MATCHED: source.alias_or_name, When.NOT_MATCHED_BY_SOURCE: target}.get(kind)

    def resolve(part: exp.Expr) -> exp.Expr:
        if side is None:
            return unqualified(part, node.this, source)
        absent_sides = sides - {side.lower()}
        for column in part.find_all(exp.Column):
            if column.table.lower() in absent_sides and column.find_ancestor(exp.Query) is None:
                refuse(
                    "that table is not available in this clause",
                    column,
                    hint=f"only {side} is available",
                )
        return source_only(unqualified(part, node.this, source), side)

    return _Clause(
        kind,
        RowAction(row_kind, frozenset(values)),
        None if condition is None else resolve(condition),
        {name: resolve(value) for name, value in values.items()},
    )


def _all_columns(
    table: FileStoreTable, source: exp.Expr, source_columns: Sequence[str], node: exp.Expr
) -> dict[str, exp.Expr]:
    """`*`: every column of the table from the column of the source with its name."""
    by_fold = {name.lower(): name for name in source_columns}
    absent = [name for name in table.schema.field_names if name.lower() not in by_fold]
    if absent:
        refuse(
            "the source lacks columns of the table",
            node,
            hint=f"name the columns to set; the source has {', '.join(source_columns)}",
            name=absent[0],
        )
    return {
        name: exp.column(by_fold[name.lower()], table=source.alias_or_name, quoted=True)
        for name in table.schema.field_names
    }


def _inserted_values(
    table: FileStoreTable,
    source: exp.Expr,
    source_columns: Sequence[str],
    insertion: exp.Insert,
    when: exp.When,
) -> dict[str, exp.Expr]:
    if when.args.get("source"):
        check_clauses(table, [When.NOT_MATCHED_BY_SOURCE], [RowAction(RowKind.INSERT)])
    if isinstance(insertion.this, exp.Star):
        return _all_columns(table, source, source_columns, insertion)
    names = table.schema.field_names
    if insertion.this is not None:
        names = tuple(column_of(table, column) for column in insertion.this.expressions)
    values = insertion.expression.expressions if insertion.expression is not None else []
    if len(values) != len(names):
        refuse(
            f"{len(values)} values given, {len(names)} expected",
            when,
            hint=f"INSERT ({', '.join(names)}) VALUES (…)",
        )
    if len(set(names)) < len(names):
        refuse("a column is given twice", when)
    return dict(zip(names, map(value_or_default, values), strict=True))


def _merge_query(
    table: FileStoreTable,
    node: exp.Merge,
    source: exp.Expr,
    rows: exp.Expr,
    clauses: Sequence[_Clause],
) -> exp.Select:
    """One join; each row with its address, the number of its clause, and that clause's values.

    `rows` are those of the source, or their placeholder.
    """
    target, name = node.this.alias_or_name, source.alias_or_name
    whens = {clause.when for clause in clauses}
    condition = unqualified(node.args["on"], node.this, source)
    words = {identifier.name.lower() for identifier in node.find_all(exp.Identifier)}
    fields = [ROW, *(field for field in table.schema.field_names if field.lower() in words)]
    target_rows = exp.select(*(exp.column(field, quoted=True) for field in fields)).from_(
        _target_node(target)
    )
    side = "FULL"
    if When.NOT_MATCHED_BY_SOURCE not in whens:
        side = "LEFT" if When.NOT_MATCHED in whens else "INNER"
        for part in split_target_only(condition, target):
            target_rows = target_rows.where(part)
    marked = exp.select("*", exp.alias_(exp.true(), _IN_SOURCE, quoted=True)).from_(rows.copy())
    join = exp.select().from_(marked.subquery(name))
    join = join.join(target_rows.subquery(target), on=condition, join_type=side)
    in_target = _is_there(exp.column(ROW, table=target, quoted=True))
    in_source = _is_there(exp.column(_IN_SOURCE, table=name, quoted=True))
    populations = {
        When.MATCHED: exp.and_(in_target, in_source),
        When.NOT_MATCHED: exp.and_(exp.not_(in_target), in_source),
        When.NOT_MATCHED_BY_SOURCE: exp.and_(in_target, exp.not_(in_source)),
    }
    number = _clause_number(clauses, populations)
    values = []
    for index, clause in enumerate(clauses):
        matches = exp.EQ(this=number.copy(), expression=exp.Literal.number(index))
        for column, value in clause.values.items():
            case = exp.Case().when(matches.copy(), value)
            values.append(_alias(case, f"{index}.{column}"))
    acting = _is_there(number.copy())
    if When.MATCHED in whens:
        acting = exp.or_(acting, populations[When.MATCHED].copy())
    return join.select(
        exp.column(ROW, table=target, quoted=True), exp.alias_(number, ACTION, quoted=True), *values
    ).where(acting)


def _clause_number(clauses: Sequence[_Clause], populations: Mapping[When, exp.Expr]) -> exp.Expr:
    """The number of the first clause that applies to a pair of rows; null: none."""
    case = exp.Case()
    for when, population in populations.items():
        choice = exp.Case()
        for index, clause in enumerate(clauses):
            if clause.when is when:
                choice = choice.when(clause.condition or exp.true(), exp.Literal.number(index))
        if choice.args.get("ifs"):
            case = case.when(population.copy(), choice)
    return exp.cast(case, "INT")


def _is_there(node: exp.Expr) -> exp.Expr:
    return exp.Not(this=exp.Is(this=node, expression=exp.null()))


# ---------------------------------------------------------------------- TRUNCATE, DROP PARTITION


def truncate(session: "SqlSession", node: Truncate) -> int:
    """TRUNCATE TABLE [PARTITION (…)]; how many rows were removed.

    Raises:
        InvalidRequestError: a column is no partition key.
        As `FileStoreTable.truncate`.
    """
    table: Any = target_table(session, node.this, appending=True)
    partition = node.args.get("partition")
    if partition:
        count = _count(table, [partition])
        table.drop_partitions([partition])
        return count
    count = _count(table, ())
    table.truncate()
    return count


def drop_partition(session: "SqlSession", node: DropPartition) -> int:
    """ALTER TABLE … DROP PARTITION; how many rows were removed.

    Raises:
        NotFoundError: there is no such partition, without IF EXISTS.
        InvalidRequestError: a column is no partition key.
        As `FileStoreTable.drop_partitions`.
    """
    table: Any = target_table(session, node.this, appending=True)
    partitions = list(node.args["partitions"])
    for partition in partitions if isinstance(table, FileStoreTable) else ():
        if not node.args.get("exists") and not live_partitions(table, [partition]):
            path = "/".join(f"{name}={value}" for name, value in partition.items())
            names = [entry.name for entry in live_partitions(table)][:10]
            hint = f"there are {', '.join(names)}" if names else "the table is empty"
            raise locate(
                NotFoundError("there is no such partition", hint=hint, partition=path), node
            )
    count = _count(table, partitions)
    table.drop_partitions(partitions)
    return count


def _count(table: Any, partitions: Sequence[Mapping[str, Any]]) -> int:
    """Rows of some partitions, or of all; read only where the metadata does not hold the count."""
    columns = (table.schema.primary_keys or table.schema.field_names)[:1]
    if not isinstance(table, FileStoreTable):
        rows = Or(tuple(And(tuple(map(_equal, partition.items()))) for partition in partitions))
        batches = table.to_batches(rows if partitions else None, columns)
        return sum(batch.num_rows for batch in batches)
    accepts, scan, count = chosen_partitions(table, partitions), table.scan(columns=columns), 0
    for split in scan.plan():
        if isinstance(split, ChangeSplit) or not accepts(split.partition):
            continue
        total = split.live_row_count
        count += sum(batch.num_rows for batch in scan.read(split)) if total is None else total
    return count


def _equal(item: tuple[str, Any]) -> Predicate:
    name, value = item
    return IsNull(name) if value is None else Compare(Op.EQ, name, value)


# ---------------------------------------------------------------------------- running in DuckDB


class _TargetRows:
    """The rows of the target table, as DuckDB reads them."""

    def __init__(self, schema: pa.Schema, rows: pa.RecordBatchReader | None) -> None:
        self.schema = schema
        self._rows = rows

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        assert self._rows is not None, "a plan alone is not run"
        yield from self._rows


class _Relation:
    """The target table in place of its name in a query; records what is read of it."""

    def __init__(self, table: FileStoreTable, rows: pa.RecordBatchReader | None) -> None:
        fields = table.schema.arrow_schema
        self.arrow_schema = pa.schema([pa.field(ROW, pa.int64()), *fields])
        self.schema = self
        self._rows = rows
        self.columns: list[str] = list(table.schema.field_names)
        self.predicate: Predicate | None = None

    def scan(self, predicate: Predicate | None, columns: list[str] | None) -> _TargetRows:
        """What the query reads."""
        names = list(self.arrow_schema.names) if columns is None else columns
        self.columns = [name for name in names if name != ROW]
        self.predicate = predicate
        schema = pa.schema([self.arrow_schema.field(name) for name in [ROW, *self.columns]])
        return _TargetRows(schema, self._rows)


def _target_node(name: str) -> exp.Table:
    alias = exp.TableAlias(this=exp.to_identifier(name, quoted=True))
    return exp.Table(this=exp.to_identifier(_TARGET, quoted=True), alias=alias)


def _run(
    session: "SqlSession",
    node: exp.Expr,
    table: FileStoreTable,
    query: exp.Select,
    actions: Sequence[RowAction],
    source: _SourceRows | None = None,
) -> ChangeResult:
    """Change the rows by a query over them and their addresses."""

    def plan(rows: pa.RecordBatchReader | None) -> tuple[Any, _Relation]:
        relation = _Relation(table, rows)
        inside = copy.copy(session)
        inside.relations = {_TARGET: relation}
        select = query
        if rows is not None and source is not None and source.rows is not None:
            inside.relations[_SOURCE] = source.rows
            select = source.query
        return plan_query(inside, select), relation

    def change(rows: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        query, _ = plan(rows)
        connection = engine.connect(time_zone(session), query.relations)
        reader = engine.run(connection, query.text, query.relations, node, query.columns, session)
        for batch in reader:
            yield from _by_clause(batch, actions)

    _, relation = plan(None)

    def predicate() -> Predicate | None:
        return both(relation.predicate, None if source is None else source.partners(table))

    return table.change_rows(change, actions, _USER, columns=relation.columns, predicate=predicate)


def _by_clause(batch: pa.RecordBatch, actions: Sequence[RowAction]) -> Iterator[pa.RecordBatch]:
    """Rows by clause, each with the columns that its clause gives."""
    numbers = batch.column(ACTION).fill_null(-1).to_numpy(zero_copy_only=False)
    for number in np.unique(numbers):
        part = batch.filter(pa.array(numbers == number))
        columns = {ROW: part.column(ROW), ACTION: part.column(ACTION).cast(pa.int32())}
        if number >= 0:
            for name in actions[number].columns:
                columns[name] = part.column(f"{number}.{name}")
        yield pa.RecordBatch.from_pydict(columns)


def _refuse_clauses(node: exp.Expr, *names: str) -> None:
    for name in names:
        if node.args.get(name):
            word = name.strip("_").upper()
            verb = type(node).__name__.upper()
            refuse(f"{verb} takes no {word}", node, hint="MERGE INTO joins tables")


def _with_inside(node: _StatementT) -> _StatementT:
    """The statement with its WITH, which Spark has before it, in each of its queries instead."""
    with_ = node.args.get("with_")
    if with_ is None:
        return node
    node = node.copy()
    node.set("with_", None)
    source = node.args.get("using")
    if isinstance(source, exp.Table):
        name = source.alias_or_name
        source.replace(exp.select("*").from_(source.copy()).subquery(name))
    kinds = (exp.Select, exp.SetOperation)
    for query in [part for part in node.find_all(*kinds) if not part.find_ancestor(*kinds)]:
        inner, outer = query.args.get("with_"), with_.copy()
        if inner is not None:
            outer.set("expressions", [*outer.expressions, *inner.expressions])
            outer.set("recursive", outer.recursive or inner.recursive)
        query.set("with_", outer)
    return node


def unqualified(node: exp.Expr, *tables: exp.Expr) -> exp.Expr:
    """A copy in which `db.t.column` is `t.column`: the relations of a query have no databases."""
    copied = node.copy()
    for column in copied.find_all(exp.Column):
        if not column.args.get("db"):
            continue
        for table in tables:
            if column.table.lower() == table.name.lower() and column.text("db") == table.text("db"):
                column.set("db", None)
                column.set("catalog", None)
                column.set("table", exp.to_identifier(table.alias_or_name, quoted=True))
    return copied


def source_only(node: exp.Expr, name: str) -> exp.Expr:
    """A copy in which columns without a table, outside of queries, are of one table."""
    copied = node.copy()
    for column in copied.find_all(exp.Column):
        if not column.table and column.find_ancestor(exp.Query) is None:
            column.set("table", exp.to_identifier(name, quoted=True))
    return copied


def split_target_only(condition: exp.Expr, name: str) -> Iterator[exp.Expr]:
    """Copies of those parts of a conjunction that refer to one table alone."""
    condition = condition.unnest()
    if isinstance(condition, exp.And):
        yield from split_target_only(condition.this, name)
        yield from split_target_only(condition.expression, name)
        return
    columns = list(condition.find_all(exp.Column))
    target_only = all(column.table.lower() == name.lower() for column in columns)
    if columns and target_only and condition.find(exp.Query) is None:
        yield condition.copy()
