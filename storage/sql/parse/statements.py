# SPDX-License-Identifier: Apache-2.0
"""The dispatch of statements, and those that are neither CREATE, DROP nor ALTER."""

from collections.abc import Callable, Mapping
from typing import Any

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from storage.sql import nodes
from storage.sql.errors import suggestion
from storage.sql.functions import FUNCTIONS
from storage.sql.parse.alter import AlterParser
from storage.sql.parse.create import CreateParser

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
