# SPDX-License-Identifier: Apache-2.0
"""Random row events for the comparison of decoding paths: sound ones, and every kind of odd ones.

Values are JSON tokens, so that what no JSON library would write can be in them: numbers at and
beyond limits, NaN tokens, escapes of half characters, bytes that are no UTF-8. Events may have
members twice, lack or add some, end early, or be another table's.
"""

import base64
import json
import random
from collections.abc import Sequence
from typing import Any

from tests.unit.ingest.debezium_events import SOURCE, connect_field, dumps

__all__ = ["COLUMNS", "FIELDS", "OddEvents"]

T = "io.debezium.time."
DECIMAL = "org.apache.kafka.connect.data.Decimal"


def _scale(scale: int, precision: int) -> dict[str, Any]:
    return {"parameters": {"scale": str(scale), "connect.decimal.precision": str(precision)}}


_BITS = {"parameters": {"length": "9"}}
_VARIABLE = [
    {"type": "int32", "field": "scale", "optional": False},
    {"type": "bytes", "field": "value", "optional": False},
]
COLUMNS: dict[str, tuple[str | dict[str, Any], dict[str, Any]]] = {
    "id": ("BIGINT", connect_field("id", "int64")),
    "region": ("STRING", connect_field("region", "string")),
    "tiny": ("TINYINT", connect_field("tiny", "int8")),
    "n": ("INT", connect_field("n", "int32")),
    "big": ("BIGINT", connect_field("big", "int64")),
    "ok": ("BOOLEAN", connect_field("ok", "boolean")),
    "f": ("FLOAT", connect_field("f", "float")),
    "d": ("DOUBLE", connect_field("d", "double")),
    "text": ("STRING", connect_field("text", "string")),
    "short": ("VARCHAR(5)", connect_field("short", "string")),
    "raw": ("BYTES", connect_field("raw", "bytes")),
    "amount": ("DECIMAL(12,2)", connect_field("amount", "bytes", DECIMAL, **_scale(2, 12))),
    "wide": ("DECIMAL(38,10)", connect_field("wide", "bytes", DECIMAL, **_scale(10, 38))),
    "huge": ("STRING", connect_field("huge", "bytes", DECIMAL, **_scale(10, 50))),
    "free": (
        "STRING",
        connect_field("free", "struct", "io.debezium.data.VariableScaleDecimal", fields=_VARIABLE),
    ),
    "day": ("DATE", connect_field("day", "int32", T + "Date")),
    "t": ("TIME(6)", connect_field("t", "int64", T + "MicroTime")),
    "ts": ("TIMESTAMP(6)", connect_field("ts", "int64", T + "MicroTimestamp")),
    "ms": ("TIMESTAMP(3)", connect_field("ms", "int64", T + "Timestamp")),
    "ns": ("TIMESTAMP(9)", connect_field("ns", "int64", T + "NanoTimestamp")),
    "tz": (
        "TIMESTAMP(6) WITH LOCAL TIME ZONE",
        connect_field("tz", "string", T + "ZonedTimestamp"),
    ),
    "bits": ("BIGINT", connect_field("bits", "bytes", "io.debezium.data.Bits", **_BITS)),
    "doc": ("STRING", connect_field("doc", "string", "io.debezium.data.Json")),
    "many": (
        {"type": "ARRAY", "element": "INT"},
        connect_field("many", "array", items={"type": "int32", "optional": True}),
    ),
    "days": (
        {"type": "ARRAY", "element": "DATE"},
        connect_field(
            "days", "array", items={"type": "int32", "optional": True, "name": T + "Date"}
        ),
    ),
}
"""Column to its type and its field in a schema block."""

FIELDS = [field for _, field in COLUMNS.values()]
KEY = ("id", "region")

_EDGES = [
    *(2**n + side for n in (7, 15, 31, 63, 64) for side in (-1, 0)),
    *(-(2**n) + side for n in (7, 15, 31, 63) for side in (-1, 0)),
    *(0, 1, -1, 86_399_999_999, 86_400_000_000, -622_191_234, 2_146_033_979, 622_191_232),
    *(9_223_372_036_825_200_000, -9_223_372_036_832_400_000, 10**25),
]
_TOKENS = [
    *(str(number).encode() for number in _EDGES),
    *(b"null", b"true", b"false", b'""', b'" "', b"[]", b"{}", b"[null]", b"[[1]]", b'{"a":1}'),
    *(b"-0", b"0.0", b"-0.0", b"1.0", b"1e2", b"1E400", b"-1e-400", b"3.4028236e38", b"1.5"),
    *(b"0.1", b"123456789012345678901234567890.12345", b"99999999.99", b"1" * 60),
    *(b"NaN", b"Infinity", b"-Infinity", b"nul", b"01", b"+1", b".5", b"1.", b"'x'", b"\xff"),
    *(b'"NaN"', b'"Infinity"', b'"-Infinity"', b'"infinity"', b'"-infinity"', b'"5"', b'"true"'),
    *(b'"\\ud800"', b'"\\ud83d\\ude00"', b'"\\u0000"', b'"\xff\xfe"', b'"\xc3"', b'"a\nb"'),
    *('"é"'.encode(), '"\U0001f600 ç"'.encode(), b'"\\"\\\\\\/\\b"', b'"tab\there"'),
    *(b'"MDk="', b'"MDk"', b'"MD k="', b'"gA=="', b'"AIA="', b'"====" ', b'"_-8="', b'"//8="'),
    *(b'"2026-01-01T00:00:00Z"', b'"2026-13-01T00:00:00Z"', b'"2026-01-01T00:00:00.1234567Z"'),
    *(b'"2026-01-01T00:00:00+14:00"', b'"2026-01-01 00:00:00"', b'"0000-00-00"'),
    *(b'"9999-12-31T23:59:59.999999-12:00"', b'"2026-02-29T00:00:00Z"'),
    b'"__debezium_unavailable_value"',
    b'"X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="',
    b'["__debezium_unavailable_value"]',
    json.dumps(list(b"__debezium_unavailable_value"), separators=(",", ":")).encode(),
    *(b'{"scale":1,"value":"MDk="}', b'{"scale":1}', b'{"scale":99999,"value":"MDk="}'),
    *(b'{"scale":1,"value":""}', b'{"value":"MDk=","scale":-3}', b"[1,2,null]", b'[1,"x"]'),
]


class OddEvents:
    """Makes events.

    Args:
        seed: of the random numbers.
        odd: share of events that have something odd.
    """

    def __init__(self, seed: int, odd: float = 0.3) -> None:
        self._random = random.Random(seed)
        self._odd = odd

    def payloads(self, count: int) -> list[bytes]:
        """Envelopes, not all of them JSON."""
        return [self._payload() for _ in range(count)]

    def sound_rows(self, count: int) -> list[dict[str, Any]]:
        """Images that have nothing odd, parsed."""
        return [json.loads(self._object(self._row())) for _ in range(count)]

    # --- values

    def _value(self, name: str) -> bytes:
        rng = self._random
        if name not in KEY and rng.random() < 0.1:
            return b"null"
        match name:
            case "id":
                return b"%d" % rng.randrange(500)
            case "region" | "short":
                return rng.choice([b'"eu"', b'"us"', '"\u00fc"'.encode()])
            case "tiny" | "bits_":
                return b"%d" % rng.randrange(-128, 128)
            case "ok":
                return rng.choice([b"true", b"false"])
            case "f" | "d":
                return rng.choice([b"%d", b"%d.25", b"%de-3"]) % rng.randrange(-9_999, 9_999)
            case "text" | "doc":
                return dumps("".join(rng.choices('aé\U0001f600"\\\n\t {}', k=rng.randrange(30))))
            case "raw" | "wide" | "huge":
                size = rng.randrange(1, {"raw": 40, "wide": 15, "huge": 20}[name])
                return self._base64(rng.randbytes(size))
            case "amount":
                return self._base64(
                    rng.randrange(-(10**12), 10**12).to_bytes(6, "big", signed=True)
                )
            case "free":
                value = self._base64(rng.randbytes(rng.randrange(1, 12)))
                return b'{"scale":%d,"value":%b}' % (rng.randrange(-3, 20), value)
            case "bits":
                return self._base64(rng.randrange(512).to_bytes(2, "little"))
            case "tz":
                return b'"2026-0%d-1%dT04:05:06.%06dZ"' % (
                    rng.randrange(1, 10),
                    rng.randrange(10),
                    rng.randrange(10**6),
                )
            case "many" | "days":
                items = [rng.choice(["null", str(rng.randrange(20_000))]) for _ in range(3)]
                return f"[{','.join(items[: rng.randrange(4)])}]".encode()
            case "t":
                return b"%d" % rng.randrange(86_400_000_000)
        return b"%d" % rng.randrange(-(2**31), 2**31)

    @staticmethod
    def _base64(data: bytes) -> bytes:
        return b'"' + base64.b64encode(data) + b'"'

    # --- images

    def _row(self) -> list[tuple[bytes, bytes]]:
        return [(dumps(name), self._value(name)) for name in COLUMNS]

    @staticmethod
    def _object(members: Sequence[tuple[bytes, bytes]]) -> bytes:
        return b"{" + b",".join(name + b":" + token for name, token in members) + b"}"

    def _odd_row(self) -> bytes:
        rng, members = self._random, self._row()
        for _ in range(rng.randrange(1, 3)):
            at = rng.randrange(len(members))
            match rng.randrange(8):
                case 0 | 1 | 2:
                    members[at] = members[at][0], rng.choice(_TOKENS)
                case 3:
                    del members[at]
                case 4:
                    members.append((members[at][0], rng.choice(_TOKENS)))
                case 5:
                    members.append((b'"n\\u0065w"', rng.choice([b"null", b"null", b"5", b'"x"'])))
                case 6:
                    rng.shuffle(members)
                case 7:
                    members[at] = b' "%b" ' % members[at][0].strip(b' "'), b" " + members[at][1]
            if not members:
                return b"{}"
        return self._object(members)

    def _image(self) -> bytes:
        odd = self._random.random() < self._odd / 2
        return self._odd_row() if odd else self._object(self._row())

    def _before(self, after: bytes) -> bytes:
        rng = self._random
        key = [(dumps(name), self._value(name)) for name in KEY]
        return rng.choice(
            [b"null", after, self._object(key), self._image(), self._object(key[:1]), b"{}"]
        )

    # --- events

    def _payload(self) -> bytes:
        rng = self._random
        op = rng.choice(["c", "r", "u", "u", "u", "d"])
        after = self._image()
        before = self._before(after) if op in "ud" else b"null"
        source = dict(SOURCE)
        if op == "d":
            after = b"null"
        payload = b'{"before":%b,"after":%b,"source":%b,"op":"%b","ts_ms":%d}' % (
            before,
            after,
            dumps(source | {"ts_ms": rng.randrange(10**12)}),
            op.encode(),
            rng.randrange(10**12),
        )
        return self._odd_event(payload) if rng.random() < self._odd / 4 else payload

    def _odd_event(self, payload: bytes) -> bytes:
        rng = self._random
        at = rng.randrange(len(payload))
        match rng.randrange(14):
            case 0:
                return payload[:at]
            case 1:
                return payload[:at] + bytes([rng.randrange(256)]) + payload[at + 1 :]
            case 2:
                return payload + rng.choice([b" ", b"x", b"{}", b"\0"])
            case 3:
                return payload.replace(b'"op":"', b'"op":"' + rng.choice([b"X", b"t", b"m", b""]))
            case 4:
                return payload.replace(b'"orders"', rng.choice([b'"other"', b"null", b"5", b'""']))
            case 5:
                return payload.replace(b'"after":{', b'"after":' + rng.choice([b"[{", b'"x",{']))
            case 6:
                return payload.replace(b'"before":', b'"after":{"id":1,"region":"eu"},"before":')
            case 7:
                return payload.replace(b'"op":"u"', b'"op":"U"').replace(b'"op":"c"', b'"op":"R"')
            case 8:
                return payload.replace(b'"ts_ms":', b'"ts_ms":' + rng.choice([b'"5', b"-", b"1e"]))
            case 9:
                return payload.replace(b'"source":', b'"sauce":')
            case 10:
                return b" \n" + payload.replace(b",", b" ,\t")
            case 11:
                return payload.replace(b'"op":"', b'"op":"d","op":"')
            case 12:
                return rng.choice(
                    [b"", b"null", b"{}", b"17", b'{"ts_ms":5}', b'{"status":"BEGIN","id":"1"}']
                )
        return payload.replace(b'"server"', b'"x"').replace(b'"pg"', rng.choice([b"null", b'"q"']))
