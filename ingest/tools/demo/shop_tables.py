# SPDX-License-Identifier: Apache-2.0
"""The three tables of the demo shop: columns, Debezium schemas, random rows, event texts.

A row is a tuple of *raw* values in column order: decimals as unscaled integers, timestamps as
microseconds, dates as days, zoned timestamps as microseconds. Rows are drawn column by column from
numpy; texts come from small fixed lists, so that making an event is one string template.
"""

import binascii
import dataclasses
import datetime
import decimal
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

Row = tuple[Any, ...]

_CONNECT = "org.apache.kafka.connect.data."
_DEBEZIUM = "io.debezium.time."


@dataclasses.dataclass(frozen=True, slots=True)
class Column:
    """A column: its Debezium schema and its type in the lake.

    Attributes:
        name: column name.
        literal: Connect type.
        arrow: type after ingestion.
        semantic: semantic type name, or empty.
        parameters: of the semantic type.
        optional: whether the column may be null.
    """

    name: str
    literal: str
    arrow: pa.DataType
    semantic: str = ""
    parameters: Mapping[str, str] = dataclasses.field(default_factory=dict)
    optional: bool = True

    def connect_schema(self) -> dict[str, Any]:
        """The field entry of a schema block."""
        entry: dict[str, Any] = {"type": self.literal, "optional": self.optional}
        if self.semantic:
            entry |= {"name": self.semantic, "version": 1}
        if self.parameters:
            entry["parameters"] = dict(self.parameters)
        return entry | {"field": self.name}

    def value(self, raw: Any) -> Any:
        """The Python value that Arrow gives for a raw one."""
        if raw is None:
            return None
        if pa.types.is_decimal(self.arrow):
            return decimal.Decimal(raw).scaleb(-self.arrow.scale)
        if pa.types.is_date(self.arrow):
            return datetime.date(1970, 1, 1) + datetime.timedelta(days=raw)
        if pa.types.is_timestamp(self.arrow):
            zone = datetime.UTC if self.arrow.tz else None
            epoch = datetime.datetime(1970, 1, 1, tzinfo=zone)
            return epoch + datetime.timedelta(microseconds=raw)
        return raw


def _key(name: str, literal: str, arrow: pa.DataType) -> Column:
    return Column(name, literal, arrow, optional=False)


def _money(name: str, precision: int) -> Column:
    parameters = {"scale": "2", "connect.decimal.precision": str(precision)}
    arrow = pa.decimal128(precision, 2)
    return Column(name, "bytes", arrow, _CONNECT + "Decimal", parameters)


def _text(name: str) -> Column:
    return Column(name, "string", pa.string())


def _micros(name: str) -> Column:
    return Column(name, "int64", pa.timestamp("us"), _DEBEZIUM + "MicroTimestamp")


@dataclasses.dataclass(frozen=True, slots=True)
class DemoTable:
    """One source table.

    Attributes:
        name: table name.
        columns: the first one is the primary key.
        key_of: primary key of the n-th row ever made.
        draw: rows for given keys, drawn from a generator.
        after: JSON text of a row.
        updated: what an update makes of a row, given a freshly drawn one of the same key.
    """

    name: str
    columns: tuple[Column, ...]
    key_of: Callable[[int], Any]
    draw: Callable[[np.random.Generator, Sequence[Any]], list[Row]]
    after: Callable[[Row], str]
    updated: Callable[[Row, Row], Row]

    @property
    def arrow_schema(self) -> pa.Schema:
        """Columns as the lake has them."""
        return pa.schema([pa.field(c.name, c.arrow, nullable=c.optional) for c in self.columns])


_FIRST = (
    "Ada",
    "Björn",
    "Chloé",
    "Dmitri",
    "Elif",
    "Farah",
    "Goran",
    "Hana",
    "Iris",
    "Jürgen",
    "Kofi",
    "Léa",
    "Mina",
    "Noor",
    "Ole",
    "Pia",
)
_LAST = (
    "Abbott",
    "Berg",
    "Çelik",
    "Dubois",
    "Eriksen",
    "Ferrari",
    "García",
    "Haas",
    "Ito",
    "Jansen",
    "Kowalski",
    "Lindqvist",
)
_CATEGORIES = ("garden", "kitchen", "lighting", "office", "outdoor", "toys")
_THINGS = ("kettle", "lamp", "chair", "spade", "globe", "tent", "clock", "rug")
_MATERIALS = ("oak", "steel", "linen", "glass", "bamboo", "wool")
_STATUS = ("placed", "packed", "shipped", "delivered", "returned")
_NOTES = (
    None,
    None,
    "leave at the door",
    'call before delivery, ask for "Sam"',
    "gift: please wrap it, no invoice in the parcel",
    "Überraschung für die Nachbarn im dritten Stock",
    "fragile\nthis side up",
    "second attempt after the first parcel came back to the depot; the customer wants to be "
    "told the day before, and the neighbour at number 12 will take it if nobody is at home",
)
_NOTE_TEXTS = {note: json.dumps(note, ensure_ascii=False) for note in _NOTES}
_BOOLEAN = ("false", "true")
_SKUS = tuple(f"SKU-{number:06d}" for number in range(1, 5_001))
_DAY_US = 86_400_000_000
_EPOCH_2026_US = 1_767_225_600_000_000


def _decimal(unscaled: int) -> str:
    """Base64 of the big-endian two's complement, as Connect writes decimals."""
    raw = unscaled.to_bytes((unscaled.bit_length() + 8) >> 3, "big", signed=True)
    return binascii.b2a_base64(raw, newline=False).decode("ascii")


def _zoned(micros: int) -> str:
    moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=micros)  # noqa: DTZ001
    return f'"{moment.isoformat(timespec="microseconds")}Z"'


def _shipping_times() -> dict[int | None, str]:
    """A thousand moments with their text: formatting one per event would double its cost."""
    step = 37 * 60_000_000 + 123_457
    texts: dict[int | None, str] = {None: "null"}
    texts.update(
        {_EPOCH_2026_US + i * step: _zoned(_EPOCH_2026_US + i * step) for i in range(1000)}
    )
    return texts


_SHIPPED = _shipping_times()
_SHIPPED_CHOICES = list(_SHIPPED)


def _micros_between(rng: np.random.Generator, count: int) -> list[int]:
    drawn: list[int] = (_EPOCH_2026_US + rng.integers(0, 300 * _DAY_US, count)).tolist()
    return drawn


def _integers(rng: np.random.Generator, low: int, high: int, count: int) -> list[int]:
    drawn: list[int] = rng.integers(low, high, count).tolist()
    return drawn


def _draw_customers(rng: np.random.Generator, keys: Sequence[Any]) -> list[Row]:
    n = len(keys)
    names = zip(_integers(rng, 0, len(_FIRST), n), _integers(rng, 0, len(_LAST), n), strict=True)
    full_names = [f"{_FIRST[first]} {_LAST[last]}" for first, last in names]
    phones = [f"+49 30 {p}" if p % 5 else None for p in _integers(rng, 100_000, 9_999_999, n)]
    limits = [v if v > 0 else None for v in _integers(rng, -200_000, 5_000_000, n)]
    births = [v if v % 7 else None for v in _integers(rng, -7_000, 13_000, n)]
    return list(
        zip(
            keys,
            [f"customer{key}@example.com" for key in keys],
            full_names,
            phones,
            [v == 0 for v in _integers(rng, 0, 10, n)],
            limits,
            births,
            _micros_between(rng, n),
            strict=True,
        )
    )


def _customer_text(row: Row) -> str:
    key, email, name, phone, vip, limit, birth, created = row
    return (
        f'{{"id":{key},"email":"{email}","full_name":"{name}",'
        f'"phone":{_text_or_null(phone)},'
        f'"vip":{_BOOLEAN[vip]},"credit_limit":{_decimal_or_null(limit)},'
        f'"birth_date":{"null" if birth is None else birth},"created_at":{created}}}'
    )


def _text_or_null(plain: str | None) -> str:
    """JSON of a text known to need no escapes."""
    return "null" if plain is None else f'"{plain}"'


def _decimal_or_null(unscaled: int | None) -> str:
    return "null" if unscaled is None else f'"{_decimal(unscaled)}"'


def _draw_products(rng: np.random.Generator, keys: Sequence[Any]) -> list[Row]:
    n = len(keys)
    things = zip(
        _integers(rng, 0, len(_MATERIALS), n), _integers(rng, 0, len(_THINGS), n), strict=True
    )
    weights = [w / 8 if w > 16 else None for w in _integers(rng, 0, 400, n)]
    return list(
        zip(
            keys,
            [f"{_MATERIALS[material]} {_THINGS[thing]}" for material, thing in things],
            [_CATEGORIES[c] for c in _integers(rng, 0, len(_CATEGORIES), n)],
            _integers(rng, 99, 99_999, n),
            weights,
            _integers(rng, 0, 5_000, n),
            [v != 0 for v in _integers(rng, 0, 12, n)],
            _micros_between(rng, n),
            strict=True,
        )
    )


def _product_text(row: Row) -> str:
    key, name, category, price, weight, stock, active, updated = row
    return (
        f'{{"sku":"{key}","name":"{name}","category":"{category}","price":"{_decimal(price)}",'
        f'"weight_kg":{"null" if weight is None else weight},"stock":{stock},'
        f'"active":{_BOOLEAN[active]},"updated_at":{updated}}}'
    )


def _draw_orders(rng: np.random.Generator, keys: Sequence[Any]) -> list[Row]:
    n = len(keys)
    shipped = [
        _SHIPPED_CHOICES[i] if i < len(_SHIPPED_CHOICES) else None
        for i in _integers(rng, 0, 2 * len(_SHIPPED_CHOICES), n)
    ]
    return list(
        zip(
            keys,
            _integers(rng, 1, 20_000, n),
            [_SKUS[number] for number in _integers(rng, 0, len(_SKUS), n)],
            _integers(rng, 1, 12, n),
            _integers(rng, -9_999, 2_000_000, n),
            [_STATUS[s] for s in _integers(rng, 0, len(_STATUS), n)],
            [v != 0 for v in _integers(rng, 0, 4, n)],
            [_NOTES[i] for i in _integers(rng, 0, len(_NOTES), n)],
            _micros_between(rng, n),
            shipped,
            strict=True,
        )
    )


def _order_text(row: Row) -> str:
    key, customer, sku, quantity, amount, status, paid, note, ordered, shipped = row
    return (
        f'{{"id":{key},"customer_id":{customer},"sku":"{sku}","quantity":{quantity},'
        f'"amount":"{_decimal(amount)}","status":"{status}","paid":{_BOOLEAN[paid]},'
        f'"note":{_NOTE_TEXTS[note]},"ordered_at":{ordered},"shipped_at":{_SHIPPED[shipped]}}}'
    )


TABLES: Mapping[str, DemoTable] = {
    "customers": DemoTable(
        name="customers",
        columns=(
            _key("id", "int64", pa.int64()),
            _text("email"),
            _text("full_name"),
            _text("phone"),
            Column("vip", "boolean", pa.bool_()),
            _money("credit_limit", 12),
            Column("birth_date", "int32", pa.date32(), _DEBEZIUM + "Date"),
            _micros("created_at"),
        ),
        key_of=int,
        draw=_draw_customers,
        after=_customer_text,
        updated=lambda old, new: (*old[:2], *new[2:6], *old[6:]),
    ),
    "products": DemoTable(
        name="products",
        columns=(
            _key("sku", "string", pa.string()),
            _text("name"),
            _text("category"),
            _money("price", 10),
            Column("weight_kg", "double", pa.float64()),
            Column("stock", "int32", pa.int32()),
            Column("active", "boolean", pa.bool_()),
            _micros("updated_at"),
        ),
        key_of="SKU-{:06d}".format,
        draw=_draw_products,
        after=_product_text,
        updated=lambda old, new: (*old[:3], new[3], old[4], *new[5:]),
    ),
    "orders": DemoTable(
        name="orders",
        columns=(
            _key("id", "int64", pa.int64()),
            Column("customer_id", "int64", pa.int64()),
            _text("sku"),
            Column("quantity", "int32", pa.int32()),
            _money("amount", 14),
            _text("status"),
            Column("paid", "boolean", pa.bool_()),
            _text("note"),
            _micros("ordered_at"),
            Column("shipped_at", "string", pa.timestamp("us", "UTC"), _DEBEZIUM + "ZonedTimestamp"),
        ),
        key_of=int,
        draw=_draw_orders,
        after=_order_text,
        updated=lambda old, new: (*old[:3], *new[3:8], old[8], new[9]),
    ),
}
