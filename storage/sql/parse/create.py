# SPDX-License-Identifier: Apache-2.0
"""CREATE and DROP."""

from typing import Any

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from storage.sql import nodes
from storage.sql.errors import suggestion
from storage.sql.parse.words import Words

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
