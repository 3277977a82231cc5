# SPDX-License-Identifier: Apache-2.0
"""Format the bytes of a record as text, decoded as far as possible without a schema."""

import json
import struct

import orjson

__all__ = ["hex_dump", "record_text"]

_SHOWN_BYTES = 1024
_SHOWN_TEXT = 20_000


def record_text(data: bytes | None, *, whole: bool = False) -> tuple[str, str]:
    """Return the kind of the bytes, and their text.

    Args:
        data: key or value of a record.
        whole: whether to show long values in full.

    Returns:
        (kind, text); the kind is `none`, `empty`, `json`, `avro, schema id N`, `text` or `bytes`.
    """
    if data is None:
        return "none", ""
    if not data:
        return "empty", ""
    framed = len(data) > 5 and data[0] == 0
    try:
        text = "" if framed else data.decode("utf-8")
    except UnicodeDecodeError:
        text = ""
    if not text:
        kind = f"avro, schema id {struct.unpack('>I', data[1:5])[0]}" if framed else "bytes"
        shown = data if whole else data[:_SHOWN_BYTES]
        return kind, hex_dump(shown) + _rest(len(data) - len(shown), "bytes")
    kind = "text"
    try:
        # the pretty form, or the very text where parsing would change a number
        parsed = orjson.loads(data)
        kind, text = "json", json.dumps(parsed, indent=2, ensure_ascii=False)
    except ValueError:
        pass
    shown_text = text if whole else text[:_SHOWN_TEXT]
    return kind, shown_text + _rest(len(text) - len(shown_text), "characters")


def _rest(count: int, what: str) -> str:
    return f"\n… {count} more {what}: see --whole" if count else ""


def hex_dump(data: bytes) -> str:
    """Format lines of 16 bytes: offset, hexadecimal, printable characters."""
    lines = []
    for at in range(0, len(data), 16):
        part = data[at : at + 16]
        digits = part.hex(" ")
        shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{at:08x}  {digits:<47}  {shown}")
    return "\n".join(lines)
