# SPDX-License-Identifier: Apache-2.0
"""ALTER, of Flink and of Spark."""

import dataclasses

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from storage.sql.nodes import (
    AlterDatabase,
    AlterMaterializedTable,
    AlterTable,
    AlterView,
    ColumnChange,
    ColumnDefinition,
    DropPartition,
)
from storage.sql.parse.words import Words

__all__ = ["AlterParser"]


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
            if not (self.take("DBPROPERTIES") or self.take("PROPERTIES")):
                self._match(TokenType.L_PAREN, advance=False)
            return AlterDatabase(this=name, options=dict(self.options()))
        if self.at("CATALOG"):
            raise self.fail(
                "TABLE, VIEW or DATABASE", hint="create the catalog again, with its options"
            )
        raise self.fail("TABLE, VIEW or DATABASE")

    def comment_statement(self) -> exp.Expression:
        """What follows COMMENT: `ON TABLE t IS 'x'`."""
        self.need("ON", "TABLE")
        table = self.table()
        self.need("IS")
        comment = None if self.take("NULL") else self.string()
        return AlterTable(this=table, changes=(ColumnChange(kind="table comment", value=comment),))

    def _view_changes(self, view: exp.Table) -> AlterView:
        if self.take("AS"):
            query, text = self.query()
            return AlterView(this=view, query=query, query_text=text)
        return AlterView(this=view, changes=self._properties())

    def _properties(self) -> tuple[ColumnChange, ...]:
        if self.take("RENAME", "TO"):
            return (ColumnChange(kind="rename", value=self.table()),)
        if self.take("SET"):
            self.take("TBLPROPERTIES")
            return (ColumnChange(kind="set", options=self.options()),)
        if self.take("RESET") or self.take("UNSET"):
            return (self._reset(),)
        raise self.fail("SET, RESET or RENAME TO")

    def _reset(self) -> ColumnChange:
        self.take("TBLPROPERTIES")
        self.exists()
        keys = self.within(self.option_key)
        return ColumnChange(kind="reset", options=tuple((key, "") for key in keys))

    def _materialized(self, table: exp.Table) -> AlterMaterializedTable:
        if self.take("AS"):
            query, text = self.query()
            return AlterMaterializedTable(this=table, action="as", query=query, query_text=text)
        for action in ("SUSPEND", "RESUME", "REFRESH"):
            if self.take(action):
                options = self.options() if self.take("WITH") else ()
                partition = self.partition() if self.take("PARTITION") else None
                return AlterMaterializedTable(
                    this=table, action=action.lower(), options=options, partition=partition
                )
        raise self.fail("SUSPEND, RESUME, REFRESH or AS")

    def _table_changes(self, table: exp.Table, *, exists: bool) -> exp.Expression:
        if self.take("DROP"):
            if_exists = self.exists()
            if self.at("PARTITION"):
                return DropPartition(
                    this=table, partitions=self._partitions(), exists=if_exists or exists
                )
            return AlterTable(this=table, changes=self._drops(if_exists), exists=exists)
        if self.at("ADD") and self._next and self._next.text.upper() in ("PARTITION", "IF"):
            raise self.fail(
                "a column", hint="partitions come into being with their first row: INSERT it"
            )
        return AlterTable(this=table, changes=self._changes(), exists=exists)

    def _partitions(self) -> tuple[dict[str, str | None], ...]:
        self.need("PARTITION")
        found = [self.partition()]
        while self._match(TokenType.COMMA):
            self.need("PARTITION")
            found.append(self.partition())
        self.take("PURGE")
        return tuple(found)

    def _drops(self, if_exists: bool) -> tuple[ColumnChange, ...]:
        if self.take("PRIMARY", "KEY"):
            return (ColumnChange(kind="drop primary key"),)
        if self.take("CONSTRAINT"):
            self.name("the name of a constraint")
            return (ColumnChange(kind="drop primary key"),)
        if self.at("WATERMARK"):
            raise self.fail("a column", hint="tables have no watermarks")
        if not (self.take("COLUMN") or self.take("COLUMNS")) and self._match(
            TokenType.L_PAREN, advance=False
        ):
            names = self.within(self.path)
        else:
            if_exists |= self.exists()
            several = self._match(TokenType.L_PAREN, advance=False)
            names = self.within(self.path) if several else [self.path()]
            while self._match(TokenType.COMMA):
                names.append(self.path())
        return tuple(ColumnChange(kind="drop", name=name, value=if_exists) for name in names)

    def _changes(self) -> tuple[ColumnChange, ...]:
        if self.take("ADD"):
            return self._columns("add")
        if self.take("MODIFY"):
            return self._columns("modify")
        if self.take("RENAME"):
            return self._renames()
        if self.take("ALTER") or self.take("CHANGE"):
            return self._altered_column(changed=self._prev.text.upper() == "CHANGE")
        return self._properties()

    def _columns(self, kind: str) -> tuple[ColumnChange, ...]:
        if self.at("PRIMARY", "KEY") or self.at("CONSTRAINT"):
            raise self.fail("a column", hint="the primary key is given when the table is created")
        if self.at("WATERMARK"):
            raise self.fail("a column", hint="watermarks belong to a streaming job")
        if not self.take("COLUMNS"):
            self.take("COLUMN")
        self.exists(wanted=False)
        if self._match(TokenType.L_PAREN, advance=False):
            columns = self.within(lambda: self.column(nested=True))
        else:
            columns = [self.column(nested=True)]
            while self._match(TokenType.COMMA):
                columns.append(self.column(nested=True))
        return tuple(ColumnChange(kind=kind, column=one, name=one.name) for one in columns)

    def _renames(self) -> tuple[ColumnChange, ...]:
        if self.take("TO"):
            return (ColumnChange(kind="rename", value=self.table()),)
        self.take("COLUMN")
        name = self.path()
        self.need("TO")
        new = self.name("the new name").name
        return (ColumnChange(kind="rename column", name=name, value=new),)

    def _altered_column(self, *, changed: bool) -> tuple[ColumnChange, ...]:
        """Spark's `ALTER COLUMN c …`, Hive's `CHANGE COLUMN old new type …`."""
        self.take("COLUMN")
        name = self.path()
        if changed and not self._at_alteration():
            column = self.column()
            (new,) = column.name
            column = dataclasses.replace(column, name=(*name[:-1], new))
            modified = ColumnChange(kind="modify", column=column, name=column.name)
            if new == name[-1]:
                return (modified,)
            return (ColumnChange(kind="rename column", name=name, value=new), modified)
        changes = [self._alteration(name)]
        while self._at_alteration():
            changes.append(self._alteration(name))
        return tuple(changes)

    def _at_alteration(self) -> bool:
        words = ("TYPE", "COMMENT", "FIRST", "AFTER", "SET", "DROP")
        return bool(self._curr) and self._curr.text.upper() in words

    def _alteration(self, name: tuple[str, ...]) -> ColumnChange:
        if self.take("TYPE"):
            column = ColumnDefinition(name=name, type=self.data_type())
            return ColumnChange(kind="type", column=column, name=name)
        if self.take("COMMENT"):
            return ColumnChange(kind="comment", name=name, value=self.string())
        if self.take("FIRST"):
            return ColumnChange(kind="place", name=name)
        if self.take("AFTER"):
            return ColumnChange(kind="place", name=name, value=self.name("a column").name)
        for word, nullable in (("SET", False), ("DROP", True)):
            if self.take(word, "NOT", "NULL"):
                return ColumnChange(kind="nullable", name=name, value=nullable)
        if self.take("SET", "DEFAULT"):
            return ColumnChange(kind="default", name=name, value=self.default())
        if self.take("DROP", "DEFAULT"):
            return ColumnChange(kind="default", name=name, value=None)
        raise self.fail("TYPE, COMMENT, FIRST, AFTER, SET NOT NULL, DROP NOT NULL or SET DEFAULT")
