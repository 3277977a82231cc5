# SPDX-License-Identifier: Apache-2.0
"""The dispatch of statements, and those that are neither CREATE, DROP nor ALTER."""

import dataclasses
from collections.abc import Callable, Mapping
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
from storage.sql.errors import suggestion
from storage.sql.functions import FUNCTIONS
from storage.sql.parse.words import Words

# ALTER, of Flink and of Spark.


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


# CREATE and DROP.


_LIKE_WORDS = ("INCLUDING", "EXCLUDING", "OVERWRITING")
_LIKE_FEATURES = (
    *("all", "constraints", "distribution", "generated", "metadata", "options", "partitions"),
    "watermarks",
)
_FORMAT_PROVIDERS = frozenset({"csv", "json", "parquet", "orc", "text"})


class CreateParser(Words):
    """Reads CREATE and DROP of catalogs, databases, tables and views, in both spellings."""

    def create_statement(self) -> exp.Expression:
        """What follows CREATE."""
        replace = self.take("OR", "REPLACE")
        if self.take("TEMPORARY") or self.take("TEMP"):
            if not self.take("VIEW"):
                raise self.fail(
                    "VIEW", hint="of temporary objects only views are supported: create the table"
                )
            view = self._view(replace=replace)
            view.set("temporary", True)
            return view
        if self.take("CATALOG"):
            exists = self.exists(affirmative=False)
            name = self.name("the name of a catalog")
            options = self.options() if self.take("WITH") else ()
            return nodes.CreateCatalog(this=name, options=options, exists=exists)
        if self.take("DATABASE") or self.take("SCHEMA") or self.take("NAMESPACE"):
            return self._database()
        if self.take("TABLE"):
            return self._table(replace=replace)
        if self.take("MATERIALIZED", "TABLE"):
            return self._table(replace=replace, kind="materialized table")
        if self.take("VIEW"):
            return self._view(replace=replace)
        if self.at("FUNCTION"):
            raise self.fail("TABLE, VIEW, DATABASE or CATALOG", hint="functions cannot be created")
        raise self.fail("TABLE, VIEW, DATABASE or CATALOG")

    def drop_statement(self) -> exp.Expression:
        """What follows DROP."""
        if (self.at("TEMPORARY") or self.at("TEMP")) and self._next.text.upper() == "VIEW":
            self._advance()
        if self.take("CATALOG"):
            exists = self.exists()
            return nodes.DropCatalog(this=self.name("the name of a catalog"), exists=exists)
        if self.take("DATABASE") or self.take("SCHEMA") or self.take("NAMESPACE"):
            exists = self.exists()
            name = self.database()
            cascade = self.take("CASCADE")
            self.take("RESTRICT")
            return nodes.DropDatabase(this=name, exists=exists, cascade=cascade)
        for kind in ("TABLE", "VIEW", "MATERIALIZED TABLE"):
            if self.take(kind):
                exists = self.exists()
                statement = nodes.DropObject(this=self.table(), kind=kind.lower(), exists=exists)
                self.take("PURGE")
                return statement
        raise self.fail("TABLE, VIEW, DATABASE or CATALOG")

    def _database(self) -> nodes.CreateDatabase:
        exists = self.exists(affirmative=False)
        name = self.database()
        comment: str | None = None
        options: dict[str, str] = {}
        while True:
            if self.take("COMMENT"):
                comment = self.string("the comment of the database")
            elif (
                self.take("WITH", "DBPROPERTIES")
                or self.take("WITH", "PROPERTIES")
                or self.take("WITH")
            ):
                options |= dict(self.options())
            elif self.take("LOCATION"):
                options["location"] = self.string("a path")
            else:
                break
        return nodes.CreateDatabase(this=name, exists=exists, comment=comment, options=options)

    def _view(self, *, replace: bool) -> nodes.CreateView:
        exists = self.exists(affirmative=False)
        view: dict[str, Any] = {"this": self.table(), "exists": exists, "replace": replace}
        if self._match(TokenType.L_PAREN, advance=False):
            columns = self.list_of(self._view_column)
            view["names"] = tuple(name for name, _ in columns)
            view["comments"] = tuple(comment for _, comment in columns)
        options: dict[str, str] = {}
        while not self.take("AS"):
            if self.take("COMMENT"):
                view["comment"] = self.string("the comment of the view")
            elif self.take("TBLPROPERTIES") or self.take("WITH"):
                options |= dict(self.options())
            else:
                raise self.fail("AS and a query")
        view["query"], view["query_text"] = self.query()
        return nodes.CreateView(**view, options=options)

    def _view_column(self) -> tuple[str, str | None]:
        name = self.name("the name of a column").name
        return name, self.string("a comment") if self.take("COMMENT") else None

    def _table(self, *, replace: bool, kind: str = "table") -> nodes.CreateTable:
        # type names differ between Spark and Flink: later words decide the dialect
        words = {token.text.upper() for token in self._tokens[self._index :]}
        self._spark = bool(words & {"USING", "TBLPROPERTIES"})
        exists = self.exists(affirmative=False)
        parts: dict[str, Any] = {
            "this": self.table(),
            "kind": kind,
            "exists": exists,
            "replace": replace,
            "columns": (),
            "primary_key": (),
            "partition": (),
            "options": {},
        }
        if self._match(TokenType.L_PAREN, advance=False) and not self._starts_query():
            self._elements(parts)
        while self._clause(parts):
            pass
        self._spark = False
        return nodes.CreateTable(**parts)

    def _starts_query(self) -> bool:
        return bool(self._next) and self._next.text.upper() in ("SELECT", "WITH")

    def _elements(self, parts: dict[str, Any]) -> None:
        elements = self.list_of(self._element)
        columns = [item for item in elements if isinstance(item, nodes.ColumnDefinition)]
        keys = [item for item in elements if not isinstance(item, nodes.ColumnDefinition)]
        keys += [(column.name[0],) for column in columns if column.primary_key]
        if len(keys) > 1:
            hint = "write PRIMARY KEY (a, b) NOT ENFORCED"
            raise self.fail("one primary key", hint=hint, token=self._prev)
        parts["columns"], parts["primary_key"] = tuple(columns), keys[0] if keys else ()

    def _element(self) -> nodes.ColumnDefinition | tuple[str, ...]:
        if self.take("CONSTRAINT"):
            self.name("the name of a constraint")
        if self.take("PRIMARY", "KEY"):
            names = tuple(self.list_of(lambda: self.name("a column").name))
            self.take("NOT", "ENFORCED")
            return names
        if self.at("WATERMARK") and self._next and self._next.text.upper() == "FOR":
            raise self.fail(
                "a column", hint="watermarks belong to a streaming job; leave the clause out"
            )
        if self.at("UNIQUE") or self.at("FOREIGN", "KEY") or self.at("CHECK"):
            raise self.fail("a column or PRIMARY KEY", hint="other constraints are not supported")
        return self.column()

    def _clause(self, parts: dict[str, Any]) -> bool:
        """Read one clause after the columns; False: there is none."""
        if self._source_clause(parts) or self._layout_clause(parts):
            return True
        if self.take("COMMENT"):
            parts["comment"] = self.string("the comment of the table")
        elif self.take("TBLPROPERTIES") or self.take("OPTIONS") or self.take("WITH"):
            parts["options"] |= dict(self.options())
        elif self.take("LOCATION"):
            parts["options"]["path"] = self.string("a path")
        elif self.take("FRESHNESS"):
            self._match(TokenType.EQ)
            self.need("INTERVAL")
            parts["freshness"] = (self.string("a number in quotes"), self._unit())
        elif self.take("REFRESH_MODE"):
            self._match(TokenType.EQ)
            parts["refresh_mode"] = self.name("FULL or CONTINUOUS").name.lower()
        else:
            return False
        return True

    def _unit(self) -> str:
        return self.name("SECOND, MINUTE, HOUR or DAY").name.lower()

    def _source_clause(self, parts: dict[str, Any]) -> bool:
        if self.take("USING"):
            provider = self.name("paimon").name.lower()
            if provider in _FORMAT_PROVIDERS:
                parts["options"] |= {"type": "format-table", "file.format": provider}
            elif provider not in ("paimon", "lakeward"):
                formats = ", ".join(sorted(_FORMAT_PROVIDERS))
                hint = f"tables are created `USING paimon`, format tables with one of {formats}"
                near = suggestion(provider, ("paimon", *_FORMAT_PROVIDERS), hint)
                raise self.fail("paimon", hint=near, token=self._prev)
        elif self.take("LIKE"):
            parts["like"] = self.table()
            if self._match(TokenType.L_PAREN, advance=False):
                parts["excluded"] = self._excluded()
        elif self.take("AS") or self.at("SELECT"):
            parts["query"], parts["query_text"] = self.query()
        else:
            return False
        return True

    def _excluded(self) -> frozenset[str]:
        """`(EXCLUDING OPTIONS …)` of Flink's LIKE: what is not copied, in lower case.

        INCLUDING and OVERWRITING are what happens anyway: a clause of the new table takes the place
        of what LIKE copies.
        """
        self._advance()
        excluded: set[str] = set()
        while not self._match(TokenType.R_PAREN):
            word = self.name("INCLUDING, EXCLUDING or OVERWRITING").name.upper()
            feature = self.name("the feature of a table").name.lower()
            if word not in _LIKE_WORDS or feature not in _LIKE_FEATURES:
                raise self.fail(
                    "the options of LIKE",
                    hint="write (EXCLUDING OPTIONS); features are " + ", ".join(_LIKE_FEATURES),
                    token=self._prev,
                )
            if feature == "all":
                excluded = set(_LIKE_FEATURES) if word == "EXCLUDING" else set()
            elif word == "EXCLUDING":
                excluded.add(feature)
            else:
                excluded.discard(feature)
            self._match(TokenType.COMMA)
        return frozenset(excluded)

    def _layout_clause(self, parts: dict[str, Any]) -> bool:
        if self.take("PARTITIONED", "BY"):
            columns = self.list_of(self._partition_column)
            parts["partition"] = tuple(column.name[0] for column in columns)
            parts["columns"] += tuple(column for column in columns if column.type is not None)
            return True
        if self.take("CLUSTERED", "BY") or self.take("DISTRIBUTED", "BY"):
            self.take("HASH")
            keys = self.list_of(lambda: self.name("a column").name)
            parts["options"] |= {"bucket-key": ",".join(keys)}
        elif not self.take("DISTRIBUTED"):
            return False
        if self.take("INTO"):
            number = self._parse_number()
            if not isinstance(number, exp.Literal):
                raise self.fail("the number of buckets")
            parts["options"] |= {"bucket": str(number.this)}
            self.need("BUCKETS")
        return True

    def _partition_column(self) -> nodes.ColumnDefinition:
        """A name, or as in Hive a column definition."""
        following = self._next.token_type if self._next else None
        if following in (TokenType.COMMA, TokenType.R_PAREN):
            return nodes.ColumnDefinition(name=(self.name("a column").name,))
        if following is TokenType.L_PAREN:
            raise self.fail("a column", hint="partition by columns; functions are not supported")
        return self.column()


_PLAIN = frozenset(
    {"SELECT", "WITH", "VALUES", "FROM", "INSERT", "DELETE", "UPDATE", "MERGE", "(", "TABLE"}
)
"""First words of statements that sqlglot parses itself."""

_OTHER_WORDS = "CREATE ALTER DROP SHOW DESCRIBE DESC USE SET RESET EXPLAIN CALL ANALYZE TRUNCATE"
STATEMENT_WORDS = (*sorted(_PLAIN - {"("}), *_OTHER_WORDS.split(), "COMMENT", "REFRESH")
"""First words of statements."""

_SHOW_OF_TABLE = (
    *("CREATE TABLE", "CREATE VIEW", "COLUMNS", "PARTITIONS", "TBLPROPERTIES"),
    *("TAGS", "BRANCHES"),
)
_SHOW_OBJECTS = (
    *("CATALOGS", "DATABASES", "SCHEMAS", "NAMESPACES", "TABLES", "VIEWS", "PROCEDURES"),
    *("CURRENT CATALOG", "CURRENT DATABASE", "CURRENT NAMESPACE"),
    *("CREATE DATABASE", "CREATE CATALOG", "TABLE EXTENDED", "MATERIALIZED TABLES"),
)
_EXPLAINED = (
    *("PLAN", "FOR", "EXTENDED", "FORMATTED", "COST", "CODEGEN"),
    *("ESTIMATED_COST", "CHANGELOG_MODE", "JSON_EXECUTION_PLAN", "PLAN_ADVICE"),
)
"""What EXPLAIN of Flink and of Spark may ask for; the plan is the same."""


class StatementParser(CreateParser, AlterParser):
    """The parser of the dialect."""

    TABLE_POSTFIX_TOKENS = CreateParser.TABLE_POSTFIX_TOKENS | {TokenType.HINT}

    FUNCTIONS = {
        name: make for name, make in CreateParser.FUNCTIONS.items() if name not in FUNCTIONS
    }

    STRICT_CAST = True
    """CAST fails where TRY_CAST gives null."""

    def _parse_statement(self) -> exp.Expr | None:
        token = self._curr
        if not token:
            return None
        word = token.text.upper()
        if self.take("TABLE"):
            return self._parse_query_modifiers(exp.select("*").from_(self.table()))
        if word in _PLAIN or token.token_type is TokenType.L_PAREN:
            return super()._parse_statement()
        parse = _READERS.get(word)
        if parse is None:
            hint = suggestion(word, STATEMENT_WORDS, f"there are {', '.join(STATEMENT_WORDS)}")
            raise self.fail("a statement", hint=hint, token=token)
        self._advance()
        return parse(self)

    def _parse_table_parts(
        self,
        schema: bool = False,
        is_db_reference: bool = False,
        wildcard: bool = False,
        fast: bool = False,
    ) -> exp.Table | exp.Dot | None:
        table = super()._parse_table_parts(schema, is_db_reference, wildcard, fast)
        if not fast and isinstance(table, exp.Table):
            self.hint(table)
        return table

    def _parse_table(self, *arguments: Any, **options: Any) -> exp.Expr | None:
        table = super()._parse_table(*arguments, **options)
        if isinstance(table, exp.Table) and self._match(TokenType.HINT, advance=False):
            self.hint(table)
        return table

    def show_statement(self) -> exp.Expression:
        """What follows SHOW."""
        self.take("EXTENDED")
        for kind in _SHOW_OF_TABLE:
            if self.take(*kind.split()):
                return self._show_of_table(kind.lower())
        for kind in _SHOW_OBJECTS:
            if self.take(*kind.split()):
                if kind.startswith("CREATE"):
                    target = self.database() if kind.endswith("DATABASE") else self.name()
                    return nodes.Show(kind=kind.lower(), this=target)
                of = self.database() if self.take("IN") or self.take("FROM") else None
                like = self.like()
                partition = self.partition() if self.take("PARTITION") else None
                return nodes.Show(kind=kind.lower(), this=of, like=like, partition=partition)
        if self.take("CREATE"):
            raise self.fail("TABLE, VIEW or DATABASE")
        kinds = [*_SHOW_OF_TABLE, *_SHOW_OBJECTS]
        word = self._curr.text if self._curr else ""
        raise self.fail(
            "what to show", hint=suggestion(word, kinds, f"there are {', '.join(kinds)}")
        )

    def _show_of_table(self, kind: str) -> nodes.Show:
        _ = self.take("IN") or self.take("FROM")
        table = self.table()
        if kind == "columns" and (self.take("IN") or self.take("FROM")):
            database = self.database()
            table.set("db", database.args["db"])
            table.set("catalog", database.args.get("catalog"))
        partition = self.partition() if self.take("PARTITION") else None
        like: str | None = None
        if kind == "tblproperties" and self._match(TokenType.L_PAREN, advance=False):
            (like,) = self.list_of(self.option_key)
        return nodes.Show(kind=kind, this=table, partition=partition, like=like or self.like())

    def describe_statement(self) -> exp.Expression:
        """What follows DESCRIBE."""
        for kind in ("CATALOG", "DATABASE", "SCHEMA", "NAMESPACE"):
            if self.take(kind):
                extended = self.take("EXTENDED")
                of = self.name() if kind == "CATALOG" else self.database()
                kind = "catalog" if kind == "CATALOG" else "database"
                return nodes.Describe(this=of, kind=kind, extended=extended)
        if self.take("PROCEDURE"):
            return nodes.Describe(this=self.table(), kind="procedure")
        _ = self.take("TABLE") or self.take("QUERY")
        extended = self.take("EXTENDED") or self.take("FORMATTED")
        if self._curr and self._curr.text.upper() in ("SELECT", "WITH", "VALUES", "("):
            query, _ = self.query()
            return nodes.Describe(this=query, kind="query")
        table = self.table()
        column = None
        if self._curr:
            column = self.path()
        return nodes.Describe(this=table, kind="table", extended=extended, column=column)

    def use_statement(self) -> exp.Expression:
        """What follows USE."""
        if self.take("CATALOG"):
            return nodes.UseCatalog(this=self.name("the name of a catalog"))
        _ = self.take("DATABASE") or self.take("SCHEMA") or self.take("NAMESPACE")
        return nodes.UseDatabase(this=self.database())

    def set_statement(self) -> exp.Expression:
        """What follows SET."""
        if not self._curr:
            return nodes.SetOption()
        key = self.option_key()
        if not self._match(TokenType.EQ):
            return nodes.SetOption(key_text=key)
        if self._curr and self._curr.token_type is TokenType.STRING:
            return nodes.SetOption(key_text=key, value=self.string())
        return nodes.SetOption(key_text=key, value=self.words_until_end())

    def reset_statement(self) -> exp.Expression:
        """What follows RESET."""
        return nodes.ResetOption(key_text=self.option_key() if self._curr else None)

    def explain_statement(self) -> exp.Expression:
        """What follows EXPLAIN."""
        while any(self.take(word) for word in _EXPLAINED) or self._match(TokenType.COMMA):
            pass
        if self.at("INSERT"):
            insert = self._parse_statement()
            query = insert.expression if insert else None
            if not isinstance(query, exp.Query):
                raise self.fail("INSERT … SELECT", token=self._prev)
            return nodes.Explain(this=query)
        query, _ = self.query()
        return nodes.Explain(this=query)

    def call_statement(self) -> exp.Expression:
        """What follows CALL."""
        parts = [self.name("sys and the name of a procedure")]
        while self._match(TokenType.DOT):
            parts.append(self.name("the name of a procedure"))
        arguments = tuple(self.list_of(self._argument))
        path = exp.Dot.build(parts) if len(parts) > 1 else parts[0]
        names = [part.name for part in parts]
        name = names[-1].lower()
        if len(names) < 2 or names[-2].lower() != "sys":
            raise self.fail("sys.", hint=f"call procedures as CALL sys.{name}(…)", token=self._prev)
        catalog = parts[-3] if len(parts) > 2 else None
        return nodes.CallProcedure(this=path, name=name, arguments=arguments, catalog=catalog)

    def _argument(self) -> tuple[str | None, exp.Expr]:
        following = self._next
        name = None
        if following and following.token_type in (TokenType.FARROW, TokenType.EQ):
            name = self.name("the name of an argument").name.lower()
            self._advance()
        value = self._parse_assignment()
        if value is None:
            raise self.fail("a value")
        return name, value

    def refresh_statement(self) -> exp.Expression:
        """What follows REFRESH: nothing is cached, so the table is only resolved."""
        self.need("TABLE")
        return nodes.Refresh(this=self.table())

    def analyze_statement(self) -> exp.Expression:
        """What follows ANALYZE."""
        self.need("TABLE")
        table = self.table()
        if self.at("PARTITION"):
            raise self.fail("COMPUTE STATISTICS", hint="statistics cover the whole table")
        self.need("COMPUTE", "STATISTICS")
        self.take("NOSCAN")
        columns: tuple[str, ...] | None = None
        if self.take("FOR", "ALL", "COLUMNS"):
            columns = ()
        elif self.take("FOR", "COLUMNS"):
            wrapped = self._match(TokenType.L_PAREN, advance=False)
            names = self.list_of(self.path) if wrapped else [self.path()]
            while self._match(TokenType.COMMA):
                names.append(self.path())
            columns = tuple(".".join(name) for name in names)
        return nodes.Analyze(this=table, columns=columns)

    def truncate_statement(self) -> exp.Expression:
        """What follows TRUNCATE."""
        self.need("TABLE")
        table = self.table()
        partition = self.partition() if self.take("PARTITION") else None
        return nodes.Truncate(this=table, partition=partition)


_READERS: Mapping[str, Callable[[StatementParser], exp.Expression]] = {
    "CREATE": StatementParser.create_statement,
    "ALTER": StatementParser.alter_statement,
    "DROP": StatementParser.drop_statement,
    "COMMENT": StatementParser.comment_statement,
    "SHOW": StatementParser.show_statement,
    "DESCRIBE": StatementParser.describe_statement,
    "DESC": StatementParser.describe_statement,
    "USE": StatementParser.use_statement,
    "SET": StatementParser.set_statement,
    "RESET": StatementParser.reset_statement,
    "EXPLAIN": StatementParser.explain_statement,
    "CALL": StatementParser.call_statement,
    "ANALYZE": StatementParser.analyze_statement,
    "TRUNCATE": StatementParser.truncate_statement,
    "REFRESH": StatementParser.refresh_statement,
}
