# SPDX-License-Identifier: Apache-2.0
"""ALTER, of Flink and of Spark."""

import dataclasses
from collections.abc import Callable
from typing import Any

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from storage.format.metadata.schema_changes import (
    AddColumn,
    DropColumn,
    DropPrimaryKey,
    MoveColumn,
    RenameColumn,
    SchemaChange,
    UpdateComment,
    UpdateDefault,
    UpdateNullability,
    UpdateTableComment,
    UpdateType,
)
from storage.sql import nodes
from storage.sql.parse.words import Words


class AlterParser(Words):
    """Reads ALTER of databases, tables and views."""

    def alter_statement(self) -> exp.Expression:
        """What follows ALTER."""
        if self.take("TABLE"):
            exists = self.exists()
            return self._table_changes(self.table(), exists=exists)
        if self.take("VIEW"):
            return self._view_changes(self.table())
        if self.take("MATERIALIZED", "TABLE"):
            return self._materialized(self.table())
        if self.take("DATABASE") or self.take("SCHEMA") or self.take("NAMESPACE"):
            name = self.database()
            self.need("SET")
            if self.take("LOCATION"):
                location = self.string("a path")
                return nodes.AlterDatabase(this=name, options={"location": location})
            if not (self.take("DBPROPERTIES") or self.take("PROPERTIES")):
                self._match(TokenType.L_PAREN, advance=False)
            return nodes.AlterDatabase(this=name, options=dict(self.options()))
        if self.at("CATALOG"):
            raise self.fail(
                "TABLE, VIEW or DATABASE", hint="create the catalog again, with its options"
            )
        raise self.fail("TABLE, VIEW or DATABASE")

    def comment_statement(self) -> exp.Expression:
        """What follows COMMENT: `ON TABLE t IS 'x'`, also ON DATABASE and ON COLUMN."""
        self.need("ON")
        of_column, of_database = self.take("COLUMN"), False
        if not of_column:
            of_database = self.take("DATABASE") or self.take("SCHEMA") or self.take("NAMESPACE")
            target = self.database() if of_database else self._commented_table()
        else:
            target = self.table()
        self.need("IS")
        comment = None if self.take("NULL") else self.string()
        if of_database:
            return nodes.AlterDatabase(this=target, options={"comment": comment or ""})
        if not of_column:
            return nodes.AlterTable(this=target, changes=(UpdateTableComment(comment),))
        if not target.db:
            raise self.fail("a column", hint="COMMENT ON COLUMN table.column IS 'text'")
        table = exp.Table(this=target.args["db"], db=target.args.get("catalog"))
        return nodes.AlterTable(this=table, changes=(UpdateComment(target.name, comment),))

    def _commented_table(self) -> exp.Table:
        self.need("TABLE")
        return self.table()

    def _view_changes(self, view: exp.Table) -> nodes.AlterView:
        if self.take("AS"):
            query, text = self.query()
            return nodes.AlterView(this=view, query=query, query_text=text)
        return nodes.AlterView(this=view, **self._properties())

    def _properties(self) -> dict[str, Any]:
        """SET, RESET or RENAME TO, as arguments of the node of a table or a view."""
        if self.take("RENAME", "TO"):
            return {"rename": self.table()}
        if self.take("SET"):
            self.take("TBLPROPERTIES")
            return {"options": self.options()}
        if self.take("RESET") or self.take("UNSET"):
            self.take("TBLPROPERTIES")
            self.exists()
            return {"reset": tuple(self.list_of(self.option_key))}
        raise self.fail("SET, RESET or RENAME TO")

    def _materialized(self, table: exp.Table) -> nodes.AlterMaterializedTable:
        if self.take("AS"):
            query, text = self.query()
            return nodes.AlterMaterializedTable(
                this=table, action="as", query=query, query_text=text
            )
        for action in ("SUSPEND", "RESUME", "REFRESH"):
            if self.take(action):
                options = self.options() if self.take("WITH") else ()
                partition = self.partition() if self.take("PARTITION") else None
                return nodes.AlterMaterializedTable(
                    this=table, action=action.lower(), options=options, partition=partition
                )
        raise self.fail("SUSPEND, RESUME, REFRESH or AS")

    def _tag_change(self, table: exp.Table) -> exp.Expression | None:
        """CREATE, REPLACE, RENAME or DELETE TAG, of Spark; None: something else."""
        actions = ("CREATE", "CREATE OR REPLACE", "REPLACE", "RENAME", "DELETE")
        if self.at("RENAME", "TAG", "TO"):  # Flink: a column of this name
            return None
        action = next((word for word in actions if self.take(*word.split(), "TAG")), None)
        if action is None:
            return None
        parts: dict[str, Any] = {"this": table, "action": action.lower()}
        parts["exists"] = self.exists(affirmative=action == "DELETE")
        parts["name"] = self.name("the name of a tag").name
        if action == "RENAME":
            self.need("TO")
            parts["new_name"] = self.name("the new name").name
        elif action != "DELETE":
            if self.take("AS", "OF", "VERSION"):
                parts["snapshot_id"] = int(self._number("the id of a snapshot"))
            if self.take("RETAIN"):
                unit_count = self._number("a number")
                unit = self.name("DAYS, HOURS or MINUTES").name.lower()
                parts["retained"] = f"{unit_count} {unit}"
        return nodes.AlterTag(**parts)

    def _number(self, what: str) -> str:
        number = self._parse_number()
        if not isinstance(number, exp.Literal) or not str(number.this).isdigit():
            raise self.fail(what)
        return str(number.this)

    def _table_changes(self, table: exp.Table, *, exists: bool) -> exp.Expression:
        tag_change = self._tag_change(table)
        if tag_change is not None:
            return tag_change
        if self.take("DROP"):
            if_exists = self.exists()
            if self.at("PARTITION"):
                return nodes.DropPartition(
                    this=table, partitions=self._partitions(), exists=if_exists or exists
                )
            return nodes.AlterTable(this=table, exists=exists, **self._drops(if_exists))
        if self.at("ADD", "PARTITION") or self.at("ADD", "IF", "NOT", "EXISTS", "PARTITION"):
            raise self.fail(
                "a change of columns or options",
                hint="a partition is created with its first row: INSERT it",
            )
        return nodes.AlterTable(this=table, exists=exists, **self._changes())

    def _partitions(self) -> tuple[dict[str, str | None], ...]:
        self.need("PARTITION")
        partitions = [self.partition()]
        while self._match(TokenType.COMMA):
            self.need("PARTITION")
            partitions.append(self.partition())
        self.take("PURGE")
        return tuple(partitions)

    def _drops(self, if_exists: bool) -> dict[str, Any]:
        if self.take("PRIMARY", "KEY"):
            return {"changes": (DropPrimaryKey(),)}
        if self.take("CONSTRAINT"):
            self.name("the name of a constraint")
            return {"changes": (DropPrimaryKey(),)}
        if self.at("WATERMARK"):
            raise self.fail("a column", hint="tables have no watermarks")
        if not (self.take("COLUMN") or self.take("COLUMNS")) and self._match(
            TokenType.L_PAREN, advance=False
        ):
            names = self.list_of(self.path)
        else:
            if_exists |= self.exists()
            has_list = self._match(TokenType.L_PAREN, advance=False)
            names = self.list_of(self.path) if has_list else [self.path()]
            while self._match(TokenType.COMMA):
                names.append(self.path())
        return {"changes": tuple(map(DropColumn, names)), "if_column_exists": if_exists}

    def _changes(self) -> dict[str, Any]:
        if self.take("ADD"):
            return {"changes": self._columns(_additions)}
        if self.take("MODIFY"):
            return {"changes": self._columns(_redefined)}
        if self.at("RENAME", "TO"):
            return self._properties()
        if self.take("RENAME"):
            self.take("COLUMN")
            name = self.path()
            self.need("TO")
            return {"changes": (RenameColumn(name, self.name("the new name").name),)}
        if self.take("ALTER") or self.take("CHANGE"):
            return {"changes": self._altered_column(redefine=self._prev.text.upper() == "CHANGE")}
        return self._properties()

    def _columns(
        self, changes_of: Callable[[nodes.ColumnDefinition], list[SchemaChange]]
    ) -> tuple[SchemaChange, ...]:
        if self.at("PRIMARY", "KEY") or self.at("CONSTRAINT"):
            raise self.fail("a column", hint="the primary key is given when the table is created")
        if self.at("WATERMARK"):
            raise self.fail("a column", hint="watermarks belong to a streaming job")
        if not self.take("COLUMNS"):
            self.take("COLUMN")
        self.exists(affirmative=False)
        if self._match(TokenType.L_PAREN, advance=False):
            columns = self.list_of(lambda: self.column(nested=True))
        else:
            columns = [self.column(nested=True)]
            while self._match(TokenType.COMMA):
                columns.append(self.column(nested=True))
        return tuple(change for column in columns for change in changes_of(column))

    def _altered_column(self, *, redefine: bool) -> tuple[SchemaChange, ...]:
        """Spark's `ALTER COLUMN c …`, Hive's `CHANGE COLUMN old new type …`."""
        self.take("COLUMN")
        name = self.path()
        if redefine and not self._at_alteration():
            column = self.column()
            (new_name,) = column.name
            column = dataclasses.replace(column, name=(*name[:-1], new_name))
            renamed = [] if new_name == name[-1] else [RenameColumn(name, new_name)]
            return (*renamed, *_modified(column))
        changes = self._alteration(name)
        while self._at_alteration() or self._match(TokenType.COMMA):
            if self._prev.token_type is TokenType.COMMA:  # Spark 4: several columns
                name = self.path()
            changes += self._alteration(name)
        return tuple(changes)

    def _at_alteration(self) -> bool:
        words = ("TYPE", "COMMENT", "FIRST", "AFTER", "SET", "DROP")
        return bool(self._curr) and self._curr.text.upper() in words

    def _alteration(self, name: tuple[str, ...]) -> list[SchemaChange]:
        if self.take("TYPE"):
            return _modified(nodes.ColumnDefinition(name=name, type=self.data_type()))
        if self.take("COMMENT"):
            return [UpdateComment(name, self.string())]
        if self.take("FIRST"):
            return [MoveColumn(name, first=True)]
        if self.take("AFTER"):
            return [MoveColumn(name, after=self.name("a column").name)]
        for word, nullable in (("SET", False), ("DROP", True)):
            if self.take(word, "NOT", "NULL"):
                return [UpdateNullability(name, nullable)]
        if self.take("SET", "DEFAULT"):
            return [UpdateDefault(name, self.default())]
        if self.take("DROP", "DEFAULT"):
            return [UpdateDefault(name, None)]
        raise self.fail("TYPE, COMMENT, FIRST, AFTER, SET NOT NULL, DROP NOT NULL or SET DEFAULT")


def _additions(column: nodes.ColumnDefinition) -> list[SchemaChange]:
    assert column.type is not None
    addition = AddColumn(
        column.name, column.type, column.comment, after=column.after, first=column.first
    )
    return [addition, *_default(column)]


def _redefined(column: nodes.ColumnDefinition) -> list[SchemaChange]:
    """MODIFY of Flink, which gives the whole column: without NOT NULL, it becomes nullable."""
    changes = _modified(column)
    if column.type is not None and column.type.nullable:
        changes.insert(1, UpdateNullability(column.name, nullable=True))
    return changes


def _modified(column: nodes.ColumnDefinition) -> list[SchemaChange]:
    assert column.type is not None
    type_ = dataclasses.replace(column.type, nullable=True)
    changes: list[SchemaChange] = [UpdateType(column.name, type_)]
    if not column.type.nullable:
        changes.append(UpdateNullability(column.name, nullable=False))
    if column.comment is not None:
        changes.append(UpdateComment(column.name, column.comment))
    if column.first or column.after is not None:
        changes.append(MoveColumn(column.name, after=column.after, first=column.first))
    return [*changes, *_default(column)]


def _default(column: nodes.ColumnDefinition) -> list[SchemaChange]:
    return [] if column.default is None else [UpdateDefault(column.name, column.default)]
