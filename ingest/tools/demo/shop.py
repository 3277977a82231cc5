# SPDX-License-Identifier: Apache-2.0
"""A seeded stream of Debezium events from a make-believe PostgreSQL shop, with its final rows.

The same seed and calls give the same bytes. Events look as Debezium's PostgreSQL connector writes
them with default settings: decimals in base64, no `before` on updates (default replica identity),
a tombstone after each delete, a key change as delete and create with linking headers. `DemoShop`
keeps the model: after any number of events `rows(table)` is what the table must hold.

Used by the demo, the end-to-end tests and the benchmarks, so it is built for speed: rows are drawn
by column, an event is one string template.
"""

import binascii
import dataclasses
import datetime
import decimal
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

# The three tables of the demo shop: columns, Debezium schemas, random rows, event texts.
#
# A row is a tuple of *raw* values in column order: decimals as unscaled integers, timestamps as
# microseconds, dates as days, zoned timestamps as microseconds. Rows are drawn column by column
# from numpy; texts come from small fixed lists, so that making an event is one string template.


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


Headers = tuple[tuple[str, bytes], ...]
Event = tuple[str, bytes | None, bytes | None, Headers]
"""(topic, key, value, headers); a tombstone has value None."""


DATABASE = "shop"
_SCHEMA = "inventory"
_CHUNK = 5_000
_STREAM_CHUNK = 200
_FIRST_LSN = 24_023_128
_LSN_STEP = 184
_TRANSACTION = 10
_SNAPSHOT = {
    "r": '"snapshot":"true",',
    **dict.fromkeys("cud", '"snapshot":"false",'),
}
_INSERT, _UPDATE, _DELETE, _KEY_CHANGE = range(4)
_NEW_KEY = "__debezium.newkey"
_OLD_KEY = "__debezium.oldkey"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """Relative weights of the kinds of change; without live rows every change is an insert.

    Attributes:
        insert: new rows.
        update: changed rows.
        delete: removed rows (each with a tombstone).
        key_change: rows whose primary key changes (a delete and a create).
    """

    insert: float = 0.3
    update: float = 0.6
    delete: float = 0.1
    key_change: float = 0.0

    def draw(self, rng: np.random.Generator, count: int) -> list[int]:
        """Kinds of `count` changes."""
        weights = np.array([self.insert, self.update, self.delete, self.key_change])
        edges = np.cumsum(weights / weights.sum())
        kinds: list[int] = np.minimum(np.searchsorted(edges, rng.random(count)), 3).tolist()
        return kinds


def topic_of(table: str) -> str:
    """Kafka topic of a table."""
    return f"{DATABASE}.{_SCHEMA}.{table}"


@dataclasses.dataclass(slots=True)
class _State:
    """One table: its rows, its live keys for random choice, and the fixed parts of its events."""

    table: DemoTable
    topic: str
    rows: dict[Any, Row]
    live: list[Any]
    row_count: int
    key_head: str
    key_tail: str
    value_prefix: str
    suffix: str
    key_only: str


class DemoShop:
    """The source database: creates events and tracks the rows that result.

    Args:
        seed: fixes everything.
        schema_block: whether events carry Debezium's schema block (about 3.5 kB more each).
        full_before: whether updates and deletes carry the whole old row (REPLICA IDENTITY FULL).
        tombstones: whether a delete is followed by a tombstone.
        time_ms: `ts_ms` of the first event [epoch ms]; a source transaction of ten events is
            a millisecond later.
    """

    def __init__(
        self,
        seed: int = 1,
        *,
        schema_block: bool = True,
        full_before: bool = False,
        tombstones: bool = True,
        time_ms: int = 1_790_000_000_000,
    ) -> None:
        self._rng = np.random.default_rng(seed)
        self._full_before = full_before
        self._tombstones = tombstones
        self._time_ms = time_ms
        self._number = 0
        self._commit_lsn = 0
        self._source_head = self._tail = ""
        self._states = {name: _state(table, schema_block) for name, table in TABLES.items()}

    def at(self, time_ms: int) -> None:
        """Set the time of the next events [epoch ms]."""
        self._time_ms = time_ms - self._number // _TRANSACTION

    def insert(self, table: str, count: int, *, snapshot: bool = False) -> Iterator[list[Event]]:
        """`count` new rows as lists of some thousand events; `snapshot` writes op `r`, not `c`."""
        state = self._states[table]
        remaining = count
        while remaining > 0:
            size = min(remaining, _CHUNK)
            keys = [state.table.key_of(state.row_count + i) for i in range(1, size + 1)]
            state.row_count += size
            state.live += keys
            op = "r" if snapshot else "c"
            fresh = state.table.draw(self._rng, keys)
            yield [self._row_event(state, row, op) for row in fresh]
            remaining -= size

    def change(self, table: str, count: int, mix: Mix | None = None) -> Iterator[list[Event]]:
        """`count` changes of random rows, not counting tombstones and creates of key changes."""
        state = self._states[table]
        remaining = count
        while remaining > 0:
            size = min(remaining, _CHUNK)
            yield self._change_some(state, size, mix or Mix())
            remaining -= size

    def stream(
        self, count: int, mix: Mix | None = None, weights: Mapping[str, float] | None = None
    ) -> Iterator[list[Event]]:
        """`count` changes over several tables, interleaved in small lists.

        Args:
            count: changes in all.
            mix: kinds of change.
            weights: relative share of the tables.
        """
        shares = weights or {"customers": 2, "products": 1, "orders": 7}
        names = sorted(shares)
        edges = np.cumsum([shares[name] for name in names])
        remaining = count
        while remaining > 0:
            size = min(remaining, _STREAM_CHUNK)
            state = self._states[names[int(np.searchsorted(edges, self._rng.random() * edges[-1]))]]
            yield self._change_some(state, size, mix or Mix())
            remaining -= size

    def rows(self, table: str) -> dict[Any, Row]:
        """The model: primary key to the row's Python values, as Arrow gives them."""
        state = self._states[table]
        columns = state.table.columns
        return {
            key: tuple([column.value(raw) for column, raw in zip(columns, row, strict=True)])
            for key, row in state.rows.items()
        }

    def expected(self, table: str) -> pa.Table:
        """The model as an Arrow table in primary key order."""
        state = self._states[table]
        ordered = [state.rows[key] for key in sorted(state.rows)]
        arrays = []
        for index, column in enumerate(state.table.columns):
            values = [column.value(row[index]) for row in ordered]
            arrays.append(pa.array(values, column.arrow))
        return pa.Table.from_arrays(arrays, schema=state.table.arrow_schema)

    def live_keys(self, table: str) -> list[Any]:
        """Primary keys of existing rows, in no particular order."""
        return list(self._states[table].live)

    def update_row(self, table: str, key: Any, **values: Any) -> list[Event]:
        """Change given columns of one row to given raw values (decimals unscaled)."""
        state = self._states[table]
        names = [column.name for column in state.table.columns]
        row = list(state.rows[key])
        for name, value in values.items():
            row[names.index(name)] = value
        return [self._updated(state, tuple(row))]

    def _change_some(self, state: _State, count: int, mix: Mix) -> list[Event]:
        plan = self._plan(state, count, mix)
        fresh = state.table.draw(self._rng, [key for _, key, _ in plan])
        updated = state.table.updated
        events: list[Event] = []
        for (kind, key, new_key), row in zip(plan, fresh, strict=True):
            if kind == _UPDATE:
                events.append(self._updated(state, updated(state.rows[key], row)))
            elif kind == _INSERT:
                events.append(self._row_event(state, row, "c"))
            elif kind == _DELETE:
                events += self._deleted(state, key)
            else:
                events += self._key_change_events(state, key, new_key)
        return events

    def _plan(self, state: _State, count: int, mix: Mix) -> list[tuple[int, Any, Any]]:
        """(kind, key, new key) of each change; afterwards `live` holds the resulting keys."""
        kinds = mix.draw(self._rng, count)
        picks = self._rng.integers(0, 1 << 62, count).tolist()
        live = state.live
        plan: list[tuple[int, Any, Any]] = []
        for kind, pick in zip(kinds, picks, strict=True):
            if kind == _INSERT or not live:
                key = self._next_key(state)
                live.append(key)
                plan.append((_INSERT, key, None))
                continue
            position = pick % len(live)
            key = live[position]
            new_key = None
            if kind == _KEY_CHANGE:
                new_key = live[position] = self._next_key(state)
            elif kind == _DELETE:
                live[position] = live[-1]
                live.pop()
            plan.append((kind, key, new_key))
        return plan

    def _next_key(self, state: _State) -> Any:
        state.row_count += 1
        return state.table.key_of(state.row_count)

    def _row_event(self, state: _State, row: Row, op: str) -> Event:
        key = row[0]
        state.rows[key] = row
        return self._event(state, key, "null", state.table.after(row), op, ())

    def _updated(self, state: _State, row: Row) -> Event:
        key = row[0]
        before = state.table.after(state.rows[key]) if self._full_before else "null"
        state.rows[key] = row
        return self._event(state, key, before, state.table.after(row), "u", ())

    def _deleted(self, state: _State, key: Any, headers: Headers = ()) -> list[Event]:
        row = state.rows.pop(key)
        if self._full_before:
            before = state.table.after(row)
        else:
            before = state.key_only.replace(_KEY_MARK, json.dumps(key))
        event = self._event(state, key, before, "null", "d", headers)
        return [event, (event[0], event[1], None, ())] if self._tombstones else [event]

    def _key_change_events(self, state: _State, key: Any, new_key: Any) -> list[Event]:
        """A key change: delete, tombstone, create, the two linked by headers."""
        row = (new_key, *state.rows[key][1:])
        link = ((_NEW_KEY, self._key(state, new_key)),)
        events = self._deleted(state, key, link)
        state.rows[new_key] = row
        back = ((_OLD_KEY, self._key(state, key)),)
        events.append(self._event(state, new_key, "null", state.table.after(row), "c", back))
        return events

    def _key(self, state: _State, key: Any) -> bytes:
        return f"{state.key_head}{key}{state.key_tail}".encode()

    def _event(
        self,
        state: _State,
        key: Any,
        before: str,
        after: str,
        op: str,
        headers: Headers,
    ) -> Event:
        number = self._number
        if number % _TRANSACTION == 0:
            self._begin(number)
        self._number = number + 1
        lsn = _FIRST_LSN + number * _LSN_STEP
        value = (
            f'{state.value_prefix}{{"before":{before},"after":{after},{self._source_head}'
            f'{_SNAPSHOT[op]}"db":"shop","sequence":"[\\"{self._commit_lsn}\\",\\"{lsn}\\"]",'
            f'"schema":"{_SCHEMA}","table":"{state.table.name}","lsn":{lsn},"xmin":null}},'
            f'"transaction":null,"op":"{op}",{self._tail}{state.suffix}'
        )
        key_bytes = f"{state.key_head}{key}{state.key_tail}".encode()
        return state.topic, key_bytes, value.encode(), headers

    def _begin(self, number: int) -> None:
        """Begin a source transaction: its events share times and transaction id."""
        millis = self._time_ms + number // _TRANSACTION
        emit_ms = millis + 41
        self._commit_lsn = _FIRST_LSN + number * _LSN_STEP - 56
        self._source_head = (
            f'"source":{{"version":"3.4.0.Final","connector":"postgresql","name":"shop",'
            f'"ts_ms":{millis},"ts_us":{millis}000,"ts_ns":{millis}000000,'
            f'"txId":{700 + number // _TRANSACTION},'
        )
        self._tail = f'"ts_ms":{emit_ms},"ts_us":{emit_ms}377,"ts_ns":{emit_ms}377215}}'


_KEY_MARK = "<key>"


def _state(table: DemoTable, schema_block: bool) -> _State:
    key_name = table.columns[0].name
    quote = '"' if table.columns[0].literal == "string" else ""
    suffix = "}" if schema_block else ""
    nulls = {column.name: None for column in table.columns[1:]}
    key_only = json.dumps({key_name: _KEY_MARK, **nulls}, separators=(",", ":"))
    topic = topic_of(table.name)
    return _State(
        table=table,
        topic=topic,
        rows={},
        live=[],
        row_count=0,
        key_head=(_prefix(_key_schema(table, topic)) if schema_block else "")
        + f'{{"{key_name}":{quote}',
        key_tail=f"{quote}}}{suffix}",
        value_prefix=_prefix(_value_schema(table, topic)) if schema_block else "",
        suffix=suffix,
        key_only=key_only.replace(f'"{_KEY_MARK}"', _KEY_MARK),
    )


def _prefix(schema: Mapping[str, Any]) -> str:
    return f'{{"schema":{json.dumps(schema, separators=(",", ":"))},"payload":'


def _struct(name: str, fields: Iterable[Any], *, field: str = "", optional: bool = False) -> Any:
    schema = {"type": "struct", "fields": list(fields), "optional": optional, "name": name}
    return {**schema, "version": 1, "field": field} if field else schema


def _scalar(field: str, kind: str, *, optional: bool = True) -> dict[str, Any]:
    return {"type": kind, "optional": optional, "field": field}


def _key_schema(table: DemoTable, topic: str) -> dict[str, Any]:
    schema: dict[str, Any] = _struct(f"{topic}.Key", [table.columns[0].connect_schema()])
    return schema


def _value_schema(table: DemoTable, topic: str) -> dict[str, Any]:
    row = [column.connect_schema() for column in table.columns]
    times = [_scalar(name, "int64") for name in ("ts_ms", "ts_us", "ts_ns")]
    source = [
        *(_scalar(name, "string", optional=False) for name in ("version", "connector", "name")),
        _scalar("ts_ms", "int64", optional=False),
        *times[1:],
        _scalar("txId", "int64"),
        _scalar("snapshot", "string"),
        _scalar("db", "string", optional=False),
        _scalar("sequence", "string"),
        *(_scalar(name, "string", optional=False) for name in ("schema", "table")),
        *(_scalar(name, "int64") for name in ("lsn", "xmin")),
    ]
    transaction = [
        _scalar("id", "string", optional=False),
        _scalar("total_order", "int64", optional=False),
        _scalar("data_collection_order", "int64", optional=False),
    ]
    schema: dict[str, Any] = _struct(
        f"{topic}.Envelope",
        [
            _struct(f"{topic}.Value", row, field="before", optional=True),
            _struct(f"{topic}.Value", row, field="after", optional=True),
            _struct("io.debezium.connector.postgresql.Source", source, field="source"),
            _struct("event.block", transaction, field="transaction", optional=True),
            _scalar("op", "string", optional=False),
            *times,
        ],
    )
    return {**schema, "version": 2}


def archive_line(event: Event) -> bytes:
    """One event as a line of a `files` source: key, value and headers of the Kafka record."""
    _, key, value, headers = event
    line = b'{"key":' + (key or b"null") + b',"value":' + (value or b"null")
    if headers:
        pairs = ",".join(f"{json.dumps(name)}:{text.decode()}" for name, text in headers)
        line += f',"headers":{{{pairs}}}'.encode()
    return line + b"}\n"


def write_archive(
    directory: Path, batches: Iterable[list[Event]], *, events_per_file: int = 20_000
) -> dict[str, int]:
    """Write events as `<directory>/<topic>/0001.jsonl`, `0002.jsonl` and so on.

    Args:
        directory: created if missing; new files are numbered after existing ones.
        batches: events in order.
        events_per_file: records per file and topic.

    Returns:
        Records per topic, tombstones included.
    """
    counts: dict[str, int] = {}
    pending: dict[str, list[bytes]] = {}
    for event in itertools.chain.from_iterable(batches):
        topic = event[0]
        lines = pending.setdefault(topic, [])
        lines.append(archive_line(event))
        counts[topic] = counts.get(topic, 0) + 1
        if len(lines) >= events_per_file:
            _write_file(directory / topic, lines)
            lines.clear()
    for topic, lines in pending.items():
        if lines:
            _write_file(directory / topic, lines)
    return counts


def _write_file(folder: Path, lines: list[bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    number = sum(1 for _ in folder.glob("*.jsonl")) + 1
    (folder / f"{number:04d}.jsonl").write_bytes(b"".join(lines))
