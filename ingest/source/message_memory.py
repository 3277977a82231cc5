# SPDX-License-Identifier: Apache-2.0
# numba infers the types of compiled functions and gives intrinsics a signature of its own
# mypy: ignore-errors
# ruff: noqa: ANN001, ANN201, ANN202
"""Compiled access to librdkafka's messages: contents of many messages copied into one buffer.

The functions take addresses of `rd_kafka_message_t` (rdkafka.h, part of the library's stable ABI):

    0 err (int32), 8 rkt, 16 partition, 24 payload, 32 len, 40 key, 48 key_len, 56 offset

They trust the addresses; `ingest.source.kafka_client` is the only caller.
"""

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ingest.compiled.cache import cached
from ingest.source.records import PADDING

_PAYLOAD, _LENGTH, _KEY, _KEY_LENGTH, _AT_OFFSET = 24, 32, 40, 48, 56
_OFFSET, _VALUE_AT, _VALUE_SIZE, _KEY_AT, _KEY_SIZE, _ERROR = range(6)
_NULL = -1


@intrinsic
def _load_word(typing, address):
    """Eight bytes at an address."""

    def generate(context, builder, signature, arguments):
        return builder.load(builder.inttoptr(arguments[0], ir.IntType(64).as_pointer()))

    return types.int64(types.int64), generate


@intrinsic
def _copy_bytes(typing, target, source, size):
    """`memcpy` between addresses."""

    def generate(context, builder, signature, arguments):
        pointer = ir.IntType(8).as_pointer()
        cgutils.raw_memcpy(
            builder,
            builder.inttoptr(arguments[0], pointer),
            builder.inttoptr(arguments[1], pointer),
            arguments[2],
            1,
        )
        return context.get_dummy_value()

    return types.none(types.int64, types.int64, types.int64), generate


@intrinsic
def _call(typing, function, argument):
    """Call the C function `void f(void *)` at an address."""

    def generate(context, builder, signature, arguments):
        form = ir.FunctionType(ir.VoidType(), [ir.IntType(64)])
        builder.call(builder.inttoptr(arguments[0], form.as_pointer()), [arguments[1]])
        return context.get_dummy_value()

    return types.none(types.int64, types.int64), generate


@intrinsic
def _ask(typing, function, argument, result):
    """Call the C function `int32_t f(void *, void *)` at an address."""

    def generate(context, builder, signature, arguments):
        word = ir.IntType(64)
        form = ir.FunctionType(ir.IntType(32), [word, word])
        return builder.call(builder.inttoptr(arguments[0], form.as_pointer()), arguments[1:])

    return types.int32(types.int64, types.int64, types.int64), generate


@cached("int64(uint64[::1], int64[:, ::1])")
def measure(messages, table):
    """Fill `table`, whose rows are: offset, value at, value size, key at, key size, error.

    Sizes of nulls are -1.

    Returns:
        Size of the buffer: all values, `PADDING` bytes, all keys, as many bytes again.
    """
    used = np.int64(0)
    for i in range(len(messages)):
        message = np.int64(messages[i])
        table[_ERROR, i] = np.int32(_load_word(message) & 0xFFFFFFFF)
        table[_OFFSET, i] = _load_word(message + _AT_OFFSET)
        table[_VALUE_AT, i] = used
        table[_VALUE_SIZE, i] = _NULL
        if _load_word(message + _PAYLOAD) != 0:
            table[_VALUE_SIZE, i] = _load_word(message + _LENGTH)
            used += table[_VALUE_SIZE, i]
    used += PADDING
    for i in range(len(messages)):
        message = np.int64(messages[i])
        table[_KEY_AT, i] = used
        table[_KEY_SIZE, i] = _NULL
        if _load_word(message + _KEY) != 0:
            table[_KEY_SIZE, i] = _load_word(message + _KEY_LENGTH)
            used += table[_KEY_SIZE, i]
    return used + PADDING


@cached("void(uint64[::1], int64[:, ::1], uint8[::1])")
def copy(messages, table, buffer):
    """Copy values and keys to where `table` says."""
    base = np.int64(buffer.ctypes.data)
    for i in range(len(messages)):
        message = np.int64(messages[i])
        if table[_VALUE_SIZE, i] > 0:
            _copy_bytes(
                base + table[_VALUE_AT, i], _load_word(message + _PAYLOAD), table[_VALUE_SIZE, i]
            )
        if table[_KEY_SIZE, i] > 0:
            _copy_bytes(base + table[_KEY_AT, i], _load_word(message + _KEY), table[_KEY_SIZE, i])


@cached("void(uint64[::1], int64, uint64[::1], boolean[::1])")
def note_headers(messages, headers, scratch, found):
    """Note in `found` for which messages `rd_kafka_message_headers` (at `headers`) finds any.

    `scratch` is one word, which the calls write.
    """
    for i in range(len(messages)):
        found[i] = _ask(headers, np.int64(messages[i]), np.int64(scratch.ctypes.data)) == 0


@cached("void(uint64[::1], int64)")
def release(messages, destroy):
    """`rd_kafka_message_destroy` (whose address is `destroy`) for each message."""
    for i in range(len(messages)):
        _call(destroy, np.int64(messages[i]))
