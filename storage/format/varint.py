# SPDX-License-Identifier: Apache-2.0
"""Numbers of variable length: seven bits a byte, lowest first, as in Avro, Thrift and Protobuf.

Signed numbers are zig-zag encoded: 0, -1, 1, -2 … as 0, 1, 2, 3 …
"""

_LONGEST = 10
"""Bytes of the largest number of 64 bits."""


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Decode the number at a position that is not negative; gives it and where it ends.

    Raises:
        IndexError: the data ends before it.
        ValueError: it has more than 64 bits.
    """
    result = shift = 0
    while True:
        byte = data[position]
        position += 1
        result |= (byte & 0x7F) << shift
        shift += 7
        if shift == 7 * _LONGEST and byte > 1:
            raise ValueError("a number has more than 64 bits")
        if byte < 0x80:
            return result, position


def read_zigzag(data: bytes, position: int) -> tuple[int, int]:
    """Decode the signed number at a position; the rest as `read_varint`."""
    value, position = read_varint(data, position)
    return (value >> 1) ^ -(value & 1), position


def varint(value: int) -> bytes:
    """Encode a number that is not negative."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def zigzag(value: int) -> bytes:
    """Encode a signed number of 64 bits."""
    return varint((value << 1) ^ (value >> 63))
