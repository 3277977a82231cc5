# SPDX-License-Identifier: Apache-2.0
"""Events made odd: names and values replaced, members twice, gone or moved, bytes damaged.

The places of names, values and members in a seed's text are found once, so a mutation is a cut.
"""

import dataclasses
import functools
import random
import re
from collections.abc import Sequence
from typing import Any

from tests.fuzz.odd_tokens import BYTES, DEPTHS, NAMES, VALUES

__all__ = ["Seed", "damaged", "mutated", "nudged", "places_of"]

_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_SCALAR = re.compile(rb"[^,\]}\s]+")
_PAYLOAD = b',"payload":'
_ORIGIN = re.compile(
    rb'"(?:source|mysqlType)":{[^}]*}|"(?:database|table|__db|__table|schema-name|table-name)":"[^"]*"'
)
_DIGIT, _LETTER = re.compile(rb"(?<!\\\\u)[0-9]"), re.compile(rb"(?<=[\"a-zA-Z])[a-zA-Z]")


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """A part of a text: a `name`, a `value`, or a `member` with both."""

    kind: str
    start: int
    end: int


@dataclasses.dataclass(frozen=True)
class Seed:
    """A record that a connector wrote, or could have.

    Attributes:
        topic: of the record.
        key: of the record.
        value: of the record.
        places: in the value.
        key_places: in the key.
    """

    topic: str
    key: bytes | None
    value: bytes | None
    places: tuple[Place, ...] = ()
    key_places: tuple[Place, ...] = ()

    @staticmethod
    def of(topic: str, key: bytes | None, value: bytes | None) -> "Seed":
        """The seed of a record in JSON."""
        return Seed(topic, key, value, places_of(value), places_of(key))

    @functools.cached_property
    def members(self) -> tuple[Place, ...]:
        """Members behind a schema block."""
        return tuple(p for p in self.payload_places if p.kind == "member")

    @functools.cached_property
    def scalars(self) -> tuple[Place, ...]:
        """Values behind a schema block that are no objects or arrays and name no table."""
        value = self.value or b""
        spans = [match.span() for match in _ORIGIN.finditer(value)]
        return tuple(
            p
            for p in self.payload_places
            if p.kind == "value" and value[p.start] not in b"{["
            if not any(start <= p.start < end for start, end in spans)
        )

    @functools.cached_property
    def digits(self) -> tuple[int, ...]:
        """Positions of digits in them."""
        return self._positions(_DIGIT)

    @functools.cached_property
    def letters(self) -> tuple[int, ...]:
        """Positions of letters in them that are strings."""
        return self._positions(_LETTER)

    def _positions(self, pattern: re.Pattern[bytes]) -> tuple[int, ...]:
        value = self.value or b""
        return tuple(
            m.start() for p in self.scalars for m in pattern.finditer(value, p.start, p.end)
        )

    @functools.cached_property
    def payload_places(self) -> tuple[Place, ...]:
        """Those behind a schema block."""
        at = -1 if self.value is None else self.value.find(_PAYLOAD)
        return self.places if at < 0 else tuple(p for p in self.places if p.start > at)


def places_of(text: bytes | None) -> tuple[Place, ...]:
    """Names, values and members of a JSON text without white space; none of what is no such."""
    found: list[Place] = []
    if text and text[:1] in b'{["':
        _value(text, 0, found)
    return tuple(found)


def _value(text: bytes, at: int, found: list[Place]) -> int:
    first, start = text[at : at + 1], at
    if first == b"{":
        at += 1
        while text[at : at + 1] != b"}":
            at += text[at : at + 1] == b","
            name = _STRING.match(text, at)
            assert name is not None, text[at : at + 50]
            found.append(Place("name", at, name.end()))
            end = _value(text, name.end() + 1, found)
            found.append(Place("member", at, end))
            at = end
        at += 1
    elif first == b"[":
        at += 1
        while text[at : at + 1] != b"]":
            at = _value(text, at + (text[at : at + 1] == b","), found)
        at += 1
    else:
        match = (_STRING if first == b'"' else _SCALAR).match(text, at)
        assert match is not None, text[at : at + 50]
        at = match.end()
    found.append(Place("value", start, at))
    return at


def mutated(
    rng: random.Random, seed: Seed, others: Sequence[Seed]
) -> tuple[bytes | None, bytes | None]:
    """(key, value) of an odd record."""
    key, value = seed.key, seed.value
    if rng.random() < 0.15 and key:
        edited = (
            _edited(rng, key, seed.key_places, others) if seed.key_places else damaged(rng, key)
        )
        key = rng.choice((None, b"", b"null", b"1", edited, edited))
    if value is None or rng.random() < 0.01:
        return key, rng.choice((None, b"", value))
    if not seed.places or rng.random() < 0.08:  # Avro, too
        return key, damaged(rng, value)
    places = seed.places if rng.random() < 0.1 else seed.payload_places
    return key, _edited(rng, value, places or seed.places, others)


_DIGITS = tuple(b"%d" % digit for digit in range(10))
_NUMBERS = (b"", b"00", b"-", b".", b"e1", b"E+5", b"9" * 10, b"1" + b"0" * 19, b"0.1", b"1" * 40)
_LETTERS = (
    *(b"a", b"Z", b"0", b" ", b"=", b"/", b"+", b"\\n", b"\\/", b"\\u0041", b"\\u00e9", b"\\u0000"),
    *(
        b"\\ud83d\\ude00",
        b"\\ud800",
        b"\\udc00\\ud800",
        b'\\"',
        b"\\\\",
        "é😀".encode(),
        b"\x7f",
        b"\x80",
    ),
    *(b"\xed\xa0\x80", b"\t", b"\\x", b"\\u12", b"__debezium_unavailable_value"),
)
_SPACES = (b" ", b"\n", b"\t", b"\r\n", b"  ", b"\x00", b"\x0b", b"\xc2\xa0")
_SHORT_VALUES = tuple(value for value in VALUES if len(value) < 50)


def nudged(
    rng: random.Random, seed: Seed, others: Sequence[Seed]
) -> tuple[bytes | None, bytes | None]:
    """(key, value) of a record that differs little from its seed; made fast.

    Args:
        rng: the source of chance.
        seed: with `Seed.places`.
        others: events of the same topic.
    """
    key, value, draw = seed.key, seed.value, rng.random()
    if value is None or not seed.scalars or draw < 0.003:
        return mutated(rng, seed, others)
    if draw < 0.5 and seed.digits:
        parts = _DIGITS if rng.random() < 0.95 else _NUMBERS
        value = _spliced(rng, value, seed.digits, 1, parts)
    elif draw < 0.6 and seed.letters:
        value = _spliced(rng, value, seed.letters, 0, _LETTERS)
    elif draw < 0.68:
        place = _picked(rng, seed.scalars)
        at = place.start if rng.random() < 0.5 else place.end
        value = value[:at] + _picked(rng, _SPACES) + value[at:]
    elif draw < 0.71:
        part = _picked(rng, _SHORT_VALUES) if draw < 0.695 else _value_of(rng, others)
        value = _replaced(value, _picked(rng, seed.scalars), part)
    elif draw < 0.81:
        value = _rearranged(rng, value, seed.members)
    else:
        value = _bitten(rng, value, _picked(rng, seed.scalars))
    if rng.random() < 0.05:
        value = damaged(rng, value)
    return key, value


def _bitten(rng: random.Random, text: bytes, place: Place) -> bytes:
    """A byte in or beside a value is another one, gone or there twice, or the last one."""
    at = place.start - 2 + int(rng.random() * (place.end - place.start + 4))
    draw = rng.random()
    if draw < 0.4:
        return text[:at] + bytes((int(rng.random() * 256),)) + text[at + 1 :]
    if draw < 0.7:
        return (
            text[:at] + bytes((text[at % len(text)] ^ 1 << int(rng.random() * 8),)) + text[at + 1 :]
        )
    if draw < 0.8:
        return text[:at] + text[at + 1 :]
    return text[: at + 1] + text[at:] if draw < 0.95 else text[:at]


def _picked(rng: random.Random, values: Sequence[Any]) -> Any:
    return values[int(rng.random() * len(values))]


def _spliced(
    rng: random.Random, text: bytes, places: Sequence[int], length: int, parts: Sequence[bytes]
) -> bytes:
    at = _picked(rng, places)
    return text[:at] + _picked(rng, parts) + text[at + length :]


def _replaced(text: bytes, place: Place, part: bytes) -> bytes:
    return text[: place.start] + part + text[place.end :]


def _value_of(rng: random.Random, others: Sequence[Seed]) -> bytes:
    other = _picked(rng, others)
    if not other.scalars:
        return b"null"
    place = _picked(rng, other.scalars)
    return other.value[place.start : place.end]


def _rearranged(rng: random.Random, text: bytes, members: Sequence[Place]) -> bytes:
    """Two members change places, or one comes twice, is gone, or an unknown one is added."""
    one, other = _picked(rng, members), _picked(rng, members)
    first, second = (one, other) if one.start < other.start else (other, one)
    part, draw = text[first.start : first.end], rng.random()
    if draw < 0.5 and first.end < second.start:
        moved = text[second.start : second.end] + text[first.end : second.start] + part
        return text[: first.start] + moved + text[second.end :]
    if draw < 0.7:
        return text[: second.end] + b"," + part + text[second.end :]
    if draw < 0.98:
        end = first.end + (text[first.end : first.end + 1] == b",")
        return text[: first.start] + text[end:]
    return (
        text[: first.end]
        + b","
        + _picked(rng, NAMES)
        + b":"
        + _picked(rng, _SHORT_VALUES)
        + text[first.end :]
    )


def damaged(rng: random.Random, text: bytes) -> bytes:
    """Bytes cut off, turned, put in, left out or repeated."""
    if not text:
        return rng.choice(BYTES)
    at = min(
        len(text),
        rng.randrange(len(text) + 5) if text[:1] != b"\0" else rng.randrange(4, len(text) + 5),
    )
    to = min(len(text), at + rng.choice((1, 1, 2, 5, 50)))
    match rng.randrange(7):
        case 0:
            return text[:at]
        case 1 | 5 | 6:
            return text[:at] + bytes([rng.randrange(256)]) + text[at + 1 :]
        case 2:
            return text[:at] + rng.choice(BYTES) + text[at:]
        case 3:
            return text[:at] + text[to:]
        case _:
            return text[:to] + text[at:]


def _edited(
    rng: random.Random, text: bytes, places: Sequence[Place], others: Sequence[Seed]
) -> bytes:
    if not places:
        return rng.choice(VALUES)
    times = rng.choice((1, 1, 1, 1, 1, 2, 2, 3, 5))
    chosen = sorted((rng.choice(places) for _ in range(times)), key=lambda place: -place.start)
    limit = len(text) + 1
    for place in chosen:
        if place.end <= limit:
            text = text[: place.start] + _other(rng, text, place, others) + text[place.end :]
            limit = place.start
    return text


def _other(rng: random.Random, text: bytes, place: Place, others: Sequence[Seed]) -> bytes:
    old = text[place.start : place.end]
    if place.kind == "name":
        return (
            rng.choice(NAMES) if rng.random() < 0.9 else rng.choice((old.upper(), old[:-1] + b' "'))
        )
    if place.kind == "member":
        return _member(rng, old, others)
    draw = rng.random()
    if draw < 0.02:
        depth = rng.choice(DEPTHS)
        opening, closing = rng.choice(((b"[", b"]"), (b'{"a":', b"}")))
        return opening * depth + old + closing * depth
    if draw < 0.25:
        return _taken(rng, others)
    if draw < 0.35:
        return _drawn(rng)
    return rng.choice(VALUES)


def _member(rng: random.Random, old: bytes, others: Sequence[Seed]) -> bytes:
    name = _STRING.match(old)
    assert name is not None
    odd = rng.choice(VALUES) if rng.random() < 0.7 else _taken(rng, others)
    match rng.randrange(4):
        case 0:
            return old + b"," + name.group() + b":" + odd
        case 1:
            return name.group() + b":" + odd + b"," + old
        case 2:
            return old + b"," + rng.choice(NAMES) + b":" + odd
        case _:
            return rng.choice(NAMES) + b":null"


def _taken(rng: random.Random, others: Sequence[Seed]) -> bytes:
    """A value of some other record."""
    other = rng.choice(others)
    if other.value is None or not other.payload_places:
        return b"null"
    place = rng.choice(other.payload_places)
    text = other.value[place.start : place.end]
    return text if place.kind != "member" else b"{" + text + b"}"


def _drawn(rng: random.Random) -> bytes:
    match rng.randrange(5):
        case 0:
            return str(rng.randrange(-(2 ** rng.randrange(1, 80)), 2**70)).encode()
        case 1:
            return repr(rng.uniform(-1, 1) * 10.0 ** rng.randrange(-20, 20)).encode()
        case 2:
            digits = f"{rng.randrange(10**12)}"
            return f'"{digits[:-2] or 0}.{digits[-2:]}"'.encode()
        case 3:
            day = f"{rng.randrange(10_001):04}-{rng.randrange(14):02}-{rng.randrange(33):02}"
            clock = f"{rng.randrange(26):02}:{rng.randrange(62):02}:{rng.randrange(62):02}"
            rest = rng.choice(("", ".5", "Z", "+02:00"))
            return f'"{day}{rng.choice(("T", " ", ""))}{clock}{rest}"'.encode()
        case _:
            return b'"' + bytes(rng.choices(b"abcXYZ019+/=-_. ", k=rng.randrange(12))) + b'"'
