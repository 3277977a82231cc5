# SPDX-License-Identifier: Apache-2.0
"""Elements of all statements: words, names, options, columns with their types."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import TypeVar

from sqlglot import exp
from sqlglot.parser import Parser
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

from storage.errors import LakewardError
from storage.format.types.types import (
    ArrayType,
    DataField,
    DataType,
    MapType,
    MultisetType,
    RowType,
    parse_type,
)
from storage.sql.errors import SqlError
from storage.sql.nodes import OPTIONS, ColumnDefinition, TableHint

_SYNONYMS = {
    "LONG": "BIGINT",
    "SHORT": "SMALLINT",
    "BYTE": "TINYINT",
    "REAL": "FLOAT",
    "TEXT": "STRING",
    "DATETIME": "TIMESTAMP",
    "TIMESTAMP_NTZ": "TIMESTAMP",
    "INT64": "BIGINT",
    "INT32": "INT",
    "BOOL": "BOOLEAN",
}
_OF_SPARK = {"TIMESTAMP": "TIMESTAMP_LTZ", "BINARY": "BYTES"}
"""Words that mean another type in Spark, when they come without parameters."""


def atomic_type(word: str, parameters: str, zone: str, *, spark: bool) -> DataType:
    """A type that is no ARRAY, MAP, MULTISET or ROW; nullable.

    Args:
        word: such as `DECIMAL`, in any case.
        parameters: such as `(10, 2)`, or empty.
        zone: such as `WITH LOCAL TIME ZONE`, or empty.
        spark: whether the statement is in Spark's spelling.

    Raises:
        InvalidRequestError: there is no such type, or a parameter is out of range.
        UnsupportedFeatureError: a type of newer Paimon versions.
    """
    word = word.upper()
    if spark and not parameters and not zone:
        word = _OF_SPARK.get(word, word)
    word = _SYNONYMS.get(word, word)
    if word == "TIMESTAMP_LTZ":
        word, zone = "TIMESTAMP", "WITH LOCAL TIME ZONE"
    return parse_type(f"{word}{parameters} {zone}".strip())


OptionPairs = tuple[tuple[str, str], ...]
_T = TypeVar("_T")
_TEXTS = frozenset({TokenType.STRING, TokenType.IDENTIFIER, TokenType.RAW_STRING})
_ZONES = ("WITH LOCAL TIME ZONE", "WITHOUT TIME ZONE", "WITH TIME ZONE")


def text_of(node: exp.Expr | None) -> str | None:
    """The text of a literal, also of one with a type (`DATE '2024-01-01'`); None of NULL.

    Raises:
        SqlError: it is no literal.
    """
    match node:
        case exp.Null():
            return None
        case exp.Literal() | exp.Boolean():
            return str(node.this).lower() if isinstance(node, exp.Boolean) else str(node.this)
        case exp.Neg(this=exp.Literal() as literal):
            return f"-{literal.this}"
        case exp.Cast(this=exp.Literal() as literal):
            return str(literal.this)
        case _:
            raise SqlError("a literal is expected here", found=node.sql() if node else "nothing")


def _nested_text(node: exp.Expr | None) -> str | None:
    """ARRAY, MAP and STRUCT of literals as texts that casts read; None: of other values."""
    match node:
        case exp.Array() | exp.Struct():
            parts = [_item_text(part) for part in node.expressions]
            if None in parts:
                return None
            marks = "[]" if isinstance(node, exp.Array) else "{}"
            return f"{marks[0]}{', '.join(map(str, parts))}{marks[1]}"
        case exp.VarMap() | exp.Map():
            keys, values = node.args["keys"].expressions, node.args["values"].expressions
            names, items = [_item_text(key) for key in keys], [_item_text(item) for item in values]
            if None in names or None in items or len(names) != len(items):
                return None
            pairs = zip(names, items, strict=True)
            return f"{{{', '.join(f'{name} -> {item}' for name, item in pairs)}}}"
        case _:
            return None


def _item_text(node: exp.Expr) -> str | None:
    if isinstance(node, exp.PropertyEQ):
        node = node.expression
    if isinstance(node, exp.Array | exp.Struct | exp.VarMap | exp.Map):
        return _nested_text(node)
    try:
        text = text_of(node)
    except SqlError:
        return None
    if text is None:
        return "null"
    is_plain = not set(text) & set(',[]{}()"\\') and "->" not in text and text == text.strip()
    return text if is_plain and text not in ("", "null") else None


class Words(SparkParser):
    """Reads words of the text in order, case-insensitively."""

    _spark = False
    """Whether the statement is in Spark's spelling, where words mean other types."""

    def fail(self, expected: str, *, hint: str = "", token: Token | None = None) -> SqlError:
        """The error for the current token."""
        token = token or self._curr
        text = token.text if token else ""
        position = token or self._prev
        column = position.col - (position.end - position.start) if position else 1
        return SqlError(
            f"expected {expected}",
            detail=f"found `{text}`" if text else "the statement ends here",
            hint=hint,
            line=position.line if position else 1,
            column=max(1, column),
        )

    def at(self, *words: str) -> bool:
        """Whether these words come next."""
        index = self._index
        matches = self.take(*words)
        self._retreat(index)
        return matches

    def take(self, *words: str) -> bool:
        """Consume these words if they come next; a token may hold several (`PRIMARY KEY`)."""
        index, remaining = self._index, " ".join(words).upper()
        while remaining:
            token = self._curr
            text = "" if not token or token.token_type in _TEXTS else token.text.upper()
            if not text or not (remaining == text or remaining.startswith(text + " ")):
                self._retreat(index)
                return False
            remaining = remaining[len(text) :].lstrip()
            self._advance()
        return True

    def need(self, *words: str) -> None:
        """Consume these words.

        Raises:
            SqlError: something else comes next.
        """
        if not self.take(*words):
            raise self.fail(" ".join(words))

    def exists(self, *, affirmative: bool = True) -> bool:
        """Consume IF EXISTS, or where not `affirmative` IF NOT EXISTS."""
        return self.take("IF", "EXISTS") if affirmative else self.take("IF", "NOT", "EXISTS")

    def name(self, what: str = "a name") -> exp.Identifier:
        """One name, quoted or not."""
        identifier = self._parse_id_var(any_token=True)
        if not isinstance(identifier, exp.Identifier):
            raise self.fail(what)
        return identifier

    def table(self) -> exp.Table:
        """`[catalog.][database.]table`."""
        if not self._curr or self._curr.token_type is TokenType.STRING:
            raise self.fail("the name of a table")
        table = self._parse_table_parts(schema=True)
        if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier):
            raise self.fail("the name of a table", token=self._prev)
        return table

    def database(self) -> exp.Table:
        """`[catalog.]database`, as a Table without a table's name."""
        name = self.name("the name of a database")
        if self._match(TokenType.DOT):
            return exp.Table(db=self.name("the name of a database"), catalog=name)
        return exp.Table(db=name)

    def path(self) -> tuple[str, ...]:
        """`column[.field…]`."""
        names = [self.name("the name of a column").name]
        while self._match(TokenType.DOT):
            names.append(self.name("the name of a field").name)
        return tuple(names)

    def string(self, what: str = "a text in single quotes") -> str:
        """A text in quotes."""
        literal = self._parse_string()
        if not isinstance(literal, exp.Literal):
            raise self.fail(what)
        return str(literal.this)

    def list_of(self, item: Callable[[], _T]) -> list[_T]:
        """`(item, item …)`; a comma may follow the last one."""
        if not self._match(TokenType.L_PAREN):
            raise self.fail("(")
        items: list[_T] = []
        if self._match(TokenType.R_PAREN):
            return items
        items.append(item())
        while self._match(TokenType.COMMA) and not self._match(TokenType.R_PAREN, advance=False):
            items.append(item())
        if not self._match(TokenType.R_PAREN):
            raise self.fail(", or )")
        return items

    def options(self) -> OptionPairs:
        """`('key' = 'value', …)`; keys and values may be without quotes, as in Spark."""
        return tuple(self.list_of(self._option))

    def _option(self) -> tuple[str, str]:
        key = self.option_key()
        is_text = bool(self._curr) and self._curr.token_type is TokenType.STRING
        if not self._match(TokenType.EQ) and not is_text:  # Spark: OPTIONS ('key' 'value')
            raise self.fail("=", hint="options are written 'key' = 'value'")
        value = self._parse_unary()
        text = text_of(value)
        if text is None:
            raise self.fail("a value", token=self._prev)
        return key, text

    def option_key(self) -> str:
        """`'key'`, a name in backquotes, or `word[.word…]`."""
        if self._curr and self._curr.token_type is TokenType.STRING:
            return self.string()
        if self._curr and self._curr.token_type is TokenType.IDENTIFIER:
            return self.name().name
        parts = [self._option_word()]
        while self._match(TokenType.DOT) or self._match(TokenType.DASH):
            parts += [self._prev.text, self._option_word()]
        return "".join(parts)

    def _option_word(self) -> str:
        token = self._curr
        if not token or not (token.text == "*" or token.text.replace("_", "").isalnum()):
            raise self.fail("the key of an option")
        self._advance()
        return str(self._prev.text)

    def words_until_end(self) -> str:
        """The text from here to the end of the statement."""
        if not self._curr:
            return ""
        start = self._curr
        while self._curr:
            self._advance()
        return self._find_sql(start, self._prev)

    def like(self) -> str | None:
        """`[LIKE] 'pattern'`."""
        if self.take("LIKE") or (self._curr and self._curr.token_type is TokenType.STRING):
            return self.string("a pattern")
        return None

    def partition(self) -> dict[str, str | None]:
        """`PARTITION (column = value, …)`, after the word."""
        return dict(self.list_of(self._partition_value))

    def _partition_value(self) -> tuple[str, str | None]:
        name = self.name("a partition column").name
        if not self._match(TokenType.EQ):
            raise self.fail("=")
        return name, text_of(self._parse_unary())

    def query(self) -> tuple[exp.Query, str]:
        """A query up to the end of the statement, with its text."""
        start = self._curr
        if not start:
            raise self.fail("a query")
        query = self._parse_statement()
        if not isinstance(query, exp.Query):
            raise self.fail("a query", token=start)
        return query, self._find_sql(start, self._prev)

    # ------------------------------------------------------------------- columns and types

    def column(self, *, nested: bool = False) -> ColumnDefinition:
        """`name type [NOT NULL] [COMMENT 'x'] [DEFAULT x] [PRIMARY KEY …] [FIRST | AFTER x]`."""
        name = self.path() if nested else (self.name("the name of a column").name,)
        if self.at("AS"):
            raise self.fail(
                "the type of a column",
                hint="Paimon's tables have no computed columns here: compute the value in the"
                " INSERT, or define a view",
            )
        column = ColumnDefinition(name=name, type=self.data_type())
        while (extended := self._with_part(column)) is not None:
            column = extended
        return column

    def _with_part(self, column: ColumnDefinition) -> ColumnDefinition | None:
        """The column with the attribute that comes next; None: there is none."""
        if self.take("COMMENT"):
            return dataclasses.replace(column, comment=self.string("the comment of the column"))
        if self.take("DEFAULT"):
            return dataclasses.replace(column, default=self.default())
        if self.take("PRIMARY", "KEY"):
            self.take("NOT", "ENFORCED")
            return dataclasses.replace(column, primary_key=True)
        if self.take("FIRST"):
            return dataclasses.replace(column, first=True)
        if self.take("AFTER"):
            return dataclasses.replace(column, after=self.name("a column").name)
        if self.at("METADATA") or self.at("GENERATED"):
            hint = "computed and metadata columns are not supported"
            raise self.fail("the end of the column", hint=hint)
        return None

    def default(self) -> str:
        """The text of a default value."""
        start = self._curr
        if not start:
            raise self.fail("a value")
        value = self._parse_unary()
        if isinstance(value, exp.Literal | exp.Boolean | exp.Null | exp.Neg | exp.Cast):
            return text_of(value) or "null"
        return _nested_text(value) or self._find_sql(start, self._prev)

    def data_type(self) -> DataType:
        """A type with its nullability.

        Raises:
            SqlError: there is no such type.
        """
        token = self._curr
        try:
            type_ = self._nested_type() or self._atomic_type()
        except SqlError:
            raise
        except LakewardError as error:
            error.context |= {
                "line": token.line,
                "column": max(1, token.col - token.end + token.start),
            }
            raise
        while self.at("ARRAY") or self.at("MULTISET"):
            type_ = ArrayType(type_) if self.take("ARRAY") else self._multiset_of(type_)
        return type_

    def _multiset_of(self, element: DataType) -> DataType:
        self.need("MULTISET")
        return self._nullable(MultisetType(element))

    def _nullable(self, type_: DataType) -> DataType:
        if self.take("NOT", "NULL"):
            return dataclasses.replace(type_, nullable=False)
        self.take("NULL")
        return type_

    def _nested_type(self) -> DataType | None:
        if not self._curr or self._curr.token_type in _TEXTS:
            return None
        word = self._curr.text.upper()
        opening = self._next
        if word not in ("ARRAY", "MAP", "MULTISET", "ROW", "STRUCT") or not opening:
            return None
        if opening.token_type not in (TokenType.LT, TokenType.L_PAREN):
            return None
        self._advance(2)
        closing = ")" if opening.token_type is TokenType.L_PAREN else ">"
        if word in ("ROW", "STRUCT"):
            return self._nullable(RowType(tuple(self._fields(closing))))
        first = self.data_type()
        if word == "MAP":
            self._need_mark(",")
            value = self.data_type()
            self._need_mark(closing)
            return self._nullable(MapType(first, value))
        self._need_mark(closing)
        return self._nullable(ArrayType(first) if word == "ARRAY" else MultisetType(first))

    def _fields(self, closing: str) -> list[DataField]:
        fields: list[DataField] = []
        while True:
            name = self.name("the name of a field").name
            self._match(TokenType.COLON)
            type_ = self.data_type()
            comment = self.string() if self.take("COMMENT") else None
            fields.append(DataField(id=len(fields), name=name, type=type_, description=comment))
            if not self._match(TokenType.COMMA):
                self._need_mark(closing)
                return fields

    def _need_mark(self, mark: str) -> None:
        if not self._curr or self._curr.text != mark:
            raise self.fail(mark)
        self._advance()

    def _atomic_type(self) -> DataType:
        token = self._curr
        if not token or token.token_type in _TEXTS:
            raise self.fail("a type")
        self._advance()
        word = str(token.text)
        if word.upper() == "DOUBLE":
            self.take("PRECISION")
        parameters = ""
        if self._match(TokenType.L_PAREN, advance=False):
            start = self._curr
            while self._curr and not self._match(TokenType.R_PAREN):
                self._advance()
            parameters = self._find_sql(start, self._prev)
        zone = next((phrase for phrase in _ZONES if self.take(*phrase.split())), "")
        return self._nullable(atomic_type(word, parameters, zone, spark=self._spark))

    # ------------------------------------------------------------------------------- hints

    def hint(self, table: exp.Table) -> None:
        """`/*+ OPTIONS('k' = 'v') */` behind the name of a table."""
        while self._match(TokenType.HINT):
            token = self._prev
            text = "".join(token.comments or ()).strip()
            options = self._hint_options(text, token)
            table.meta[OPTIONS] = {**table.meta.get(OPTIONS, {}), **options}

    def _hint_options(self, text: str, token: Token) -> Mapping[str, str]:
        if not text.upper().startswith("OPTIONS"):
            raise self.fail("the hint OPTIONS('key' = 'value')", token=token)
        parser = type(self)(dialect=self.dialect)
        (hint,) = parser._parse(_hint_body, self.dialect.tokenize(text), text)
        assert isinstance(hint, TableHint)
        return dict(hint.args["options"])


def _hint_body(parser: Parser) -> TableHint:
    assert isinstance(parser, Words)
    parser.need("OPTIONS")
    return TableHint(options=parser.options())
