# SPDX-License-Identifier: Apache-2.0
"""The compiled scan: finds the values of events whose constant text is known.

Importing this module imports numba and loads its functions from the cache, or compiles them; that
is for `ingest.compiled.loading` to decide. `layout` defines the steps of a layout and learns them.

Nothing here trusts an event: every constant text is compared byte by byte, every value is checked
against JSON's grammar, and what is not understood at once (an integer of more than 18 digits, a
lone surrogate, white space where the layout has none) leaves the event to another path. Nothing is
read beyond an event's end except words of 8 bytes, for which buffers end with `PADDING`.
"""

import string

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from ingest.compiled.cache import cached
from ingest.compiled.loading import (
    ABSENT,
    ANY,
    CLOSED,
    END,
    FIRST,
    FIRST_ROW,
    KEEPS_KEY,
    NAME_COUNT,
    NAMES,
    NEXT_ROW,
    OLD,
    OP,
    OP_CODE,
    OPS,
    SET_STAMP,
    STAMP,
    WHOLE,
    Wire,
)

# as `_column` reads values
INTEGER, TEXT, BASE64 = int(Wire.INTEGER), int(Wire.TEXT), int(Wire.BASE64)
NUMBER, TOKEN, LOOSE = int(Wire.NUMBER), int(Wire.TOKEN), int(Wire.LOOSE)


_TEXT_AT, _TEXT_SIZE, _KIND, _SLOT = range(4)
_CODE = 2

_QUOTE, _BACKSLASH, _COMMA, _COLON, _MINUS, _ZERO, _NINE = 34, 92, 44, 58, 45, 48, 57
_MOST_DIGITS, _MOST_NUMBER, _MOST_DEPTH = 18, 40, 30
_ESCAPES = 1
_WIDE = 2

_ONE, _THREE = np.uint64(1), np.uint64(3)
_ONES = np.uint64(0x0101010101010101)
_HIGH = np.uint64(0x8080808080808080)
_ZEROS = _ONES * np.uint64(_ZERO)
_NO_DIGIT = _ONES * np.uint64(0x7F - 9)
_POWERS = np.array([10**count for count in range(9)], np.int64)
_QUOTES = _ONES * np.uint64(_QUOTE)
_BACKSLASHES = _ONES * np.uint64(_BACKSLASH)
_SPACES = _ONES * np.uint64(32)


# without reference counts, which would cost more than the work
_leaf = njit(_nrt=False)
_leaf_inline = njit(_nrt=False, forceinline=True)


@intrinsic
def _load_word(typing, data, at):
    """Eight bytes of an array from any position."""

    def generate(context, builder, signature, arguments):
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        pointer = builder.gep(array.data, [arguments[1]])
        value = builder.load(builder.bitcast(pointer, ir.IntType(64).as_pointer()))
        value.align = 1
        return value

    return types.uint64(data, types.int64), generate


@intrinsic
def _put_word(typing, data, at, word):
    """Write eight bytes of an array at any position."""

    def generate(context, builder, signature, arguments):
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        pointer = builder.gep(array.data, [arguments[1]])
        target = builder.bitcast(pointer, ir.IntType(64).as_pointer())
        builder.store(arguments[2], target).align = 1
        return context.get_dummy_value()

    return types.none(data, types.int64, types.uint64), generate


@intrinsic
def _trailing_zeros(typing, word):
    """Bits below the lowest one that is set."""

    def generate(context, builder, signature, arguments):
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(types.uint64), generate


@_leaf_inline
def _equal_bytes(data, at, texts, text_at, size):
    k = 0
    while k + 8 <= size:
        if _load_word(data, at + k) != _load_word(texts, text_at + k):
            return False
        k += 8
    if k == size:
        return True
    differ = _load_word(data, at + k) ^ _load_word(texts, text_at + k)
    return (differ << np.uint64(64 - 8 * (size - k))) == 0


@_leaf_inline
def _blank(data, at, end):
    """The position after white space."""
    while at < end and data[at] <= 32 and data[at] in (32, 9, 10, 13):
        at += 1
    return at


@_leaf_inline
def _is_word(data, at, end, word):
    """Whether `null` or `true` is here, as a number of 4 bytes."""
    return at + 4 <= end and (_load_word(data, at) & np.uint64(0xFFFFFFFF)) == word


_NULL = np.uint64(int.from_bytes(b"null", "little"))
_TRUE = np.uint64(int.from_bytes(b"true", "little"))
_FALS = np.uint64(int.from_bytes(b"fals", "little"))


@_leaf_inline
def _is_false(data, at, end):
    return at + 5 <= end and _is_word(data, at, end, _FALS) and data[at + 4] == 101


@_leaf
def _hexadecimal(data, at):
    """The number of four hexadecimal digits; -1 if they are invalid."""
    number = np.int64(0)
    for k in range(4):
        digit = np.int64(data[at + k])
        if _ZERO <= digit <= _NINE:
            digit -= _ZERO
        elif 97 <= (digit | 32) <= 102:
            digit = (digit | 32) - 87
        else:
            return np.int64(-1)
        number = number * 16 + digit
    return number


@_leaf
def _escape_end(data, at, end):
    """The position after an escape that starts here, -1 if it is invalid (a lone surrogate)."""
    if at + 2 > end:
        return -1
    letter = data[at + 1]
    if letter != 117:
        return at + 2 if letter in (34, 92, 47, 98, 102, 110, 114, 116) else -1
    if at + 6 > end:
        return -1
    code = _hexadecimal(data, at + 2)
    if code < 0xD800 or code > 0xDFFF:
        return -1 if code < 0 else at + 6
    if code >= 0xDC00 or at + 12 > end or data[at + 6] != _BACKSLASH or data[at + 7] != 117:
        return -1
    return at + 12 if 0xDC00 <= _hexadecimal(data, at + 8) <= 0xDFFF else -1


@_leaf
def _text_end(data, at, end):
    """(position of the closing quote or -1, flags) of a text whose opening quote is before `at`."""
    flags = np.int64(0)
    beyond = np.uint64(0)
    while at < end:
        word = _load_word(data, at)
        quotes, slashes = word ^ _QUOTES, word ^ _BACKSLASHES
        odd = ((quotes - _ONES) & ~quotes) | ((slashes - _ONES) & ~slashes)
        odd = (odd | ((word - _SPACES) & ~word)) & _HIGH
        if odd == 0:
            beyond |= word
            at += 8
            continue
        # marks above the lowest one may be wrong, the bytes below it are plain
        lowest = _trailing_zeros(odd)
        beyond |= word & ((_ONE << lowest) - _ONE)
        at += np.int64(lowest >> _THREE)
        if at >= end:
            return -1, flags
        if data[at] == _QUOTE:
            return at, flags | (_WIDE if beyond & _HIGH else 0)
        if data[at] != _BACKSLASH:
            return -1, flags
        at = _escape_end(data, at, end)
        flags |= _ESCAPES
        if at < 0:
            return -1, flags
    return -1, flags


@_leaf_inline
def _digit_count(word):
    """Number of digits in eight bytes before the first other byte."""
    digits = word ^ _ZEROS
    odd = ((digits + _NO_DIGIT) | digits) & _HIGH
    return np.int64(8) if odd == 0 else np.int64(_trailing_zeros(odd) >> _THREE)


@_leaf_inline
def _digit_value(word, count):
    """The number of the first 1 to 8 bytes, which are digits: pairs, fours, eights."""
    value = (word ^ _ZEROS) << np.uint64(64 - 8 * count)
    value = ((value * np.uint64(2_561)) >> np.uint64(8)) & np.uint64(0x00FF00FF00FF00FF)
    value = ((value * np.uint64(6_553_601)) >> np.uint64(16)) & np.uint64(0x0000FFFF0000FFFF)
    return np.int64((value * np.uint64(42_949_672_960_001)) >> np.uint64(32))


@_leaf_inline
def _integer(data, at, end):
    """(position after it or -1, number) of an integer that always fits 64 bits."""
    minus = at < end and data[at] == _MINUS
    if minus:
        at += 1
    first = at
    number = np.int64(0)
    while at < end:
        word = _load_word(data, at)
        count = _digit_count(word)
        at += count
        if at - first > _MOST_DIGITS:
            return -1, number
        if count:
            number = number * _POWERS[count] + _digit_value(word, count)
        if count < 8:
            break
    digits = at - first
    if at > end or digits == 0 or (data[first] == _ZERO and (digits > 1 or minus)):
        return -1, number
    return at, -number if minus else number


@_leaf_inline
def _digits_end(data, at, end):
    while at < end:
        count = _digit_count(_load_word(data, at))
        at += count
        if count < 8:
            break
    return min(at, end)


@_leaf
def _number_end(data, at, end):
    """The position after a number, or -1; numbers near a double's limits and -0 are rejected."""
    start = at
    if at < end and data[at] == _MINUS:
        at += 1
    first = at
    at = _digits_end(data, at, end)
    if at == first or (data[first] == _ZERO and at > first + 1):
        return -1
    whole = True
    if at < end and data[at] == 46:
        whole = False
        point = at + 1
        at = _digits_end(data, point, end)
        if at == point:
            return -1
    if at < end and data[at] in (69, 101):
        whole = False
        at += 1
        if at < end and data[at] in (43, 45):
            at += 1
        exponent = at
        at = _digits_end(data, at, end)
        if not 1 <= at - exponent <= 2:
            return -1
    negative_zero = whole and start < first and data[first] == _ZERO
    return -1 if negative_zero or at - start > _MOST_NUMBER else at


@_leaf_inline
def _scalar_end(data, at, end):
    """The position after a value that is no object or array, or -1."""
    if data[at] == _QUOTE:
        at, _ = _text_end(data, at + 1, end)
        return at + 1 if at >= 0 else -1
    if _is_word(data, at, end, _NULL) or _is_word(data, at, end, _TRUE):
        return at + 4
    return at + 5 if _is_false(data, at, end) else _number_end(data, at, end)


@_leaf_inline
def _name_end(data, at, end):
    """The position of the value after a member's name and colon, or -1."""
    if at >= end or data[at] != _QUOTE:
        return -1
    at, _ = _text_end(data, at + 1, end)
    if at < 0:
        return -1
    at = _blank(data, at + 1, end)
    return _blank(data, at + 1, end) if at < end and data[at] == _COLON else -1


@_leaf
def _value_end(data, at, end):  # noqa: C901 - one loop, as there is no recursion
    """The position after any value, or -1.

    No recursion: numba does not load recursive functions from its cache.
    """
    depth = 0
    objects = np.uint64(0)  # a bit for each open level, the innermost lowest: 1 of an object
    bit = np.uint64(1)
    while 0 <= at < end:
        opening = data[at]
        if opening in (123, 91):
            depth += 1
            objects = (objects << bit) | np.uint64(opening == 123)
            at = _blank(data, at + 1, end)
            if depth > _MOST_DEPTH or at >= end:
                return -1
            if data[at] != opening + 2:
                if opening == 123:
                    at = _name_end(data, at, end)
                continue
        else:
            at = _scalar_end(data, at, end)
            if at < 0 or depth == 0:
                return at
            at = _blank(data, at, end)
        # after a value, or where an empty object or array ends
        while at < end and data[at] == (125 if objects & bit else 93):
            depth -= 1
            objects >>= bit
            if depth == 0:
                return at + 1
            at = _blank(data, at + 1, end)
        if at >= end or data[at] != _COMMA:
            return -1
        at = _blank(data, at + 1, end)
        if objects & bit:
            at = _name_end(data, at, end)
    return -1


@_leaf_inline
def _column(data, at, end, kind, slot, row, spans, numbers):
    """Record the value of a column; the position after it, or -1."""
    start = at
    number = np.int64(0)
    if kind == TOKEN:
        at = _value_end(data, at, end)
        until = at
    elif _is_word(data, at, end, _NULL):
        start, until, at = 0, 0, at + 4
    elif kind == INTEGER:
        at, number = _integer(data, at, end)
        until = at
    elif kind == LOOSE and at < end and data[at] != _QUOTE:
        at = -1 if data[at] in (123, 91) else _scalar_end(data, at, end)
        until = at
    elif kind in (TEXT, BASE64, LOOSE):
        if at >= end or data[at] != _QUOTE:
            return -1
        start = at + 1
        until, number = _text_end(data, start, end)
        at = until + 1 if until >= 0 else -1
        if kind == BASE64 and number:
            return -1
    elif kind == NUMBER:
        at = _number_end(data, at, end)
        until = at
    else:
        number = np.int64(_is_word(data, at, end, _TRUE))
        at = at + 4 if number else (at + 5 if _is_false(data, at, end) else -1)
        until = at
    spans[slot, 0, row] = start
    spans[slot, 1, row] = until
    numbers[slot, row] = number
    return at


@_leaf_inline
def _operation(data, at, end, texts, words):
    """(position after an operation or -1, its code)."""
    for k in range(len(words)):
        size = words[k, _TEXT_SIZE]
        if end - at >= size and _equal_bytes(data, at, texts, words[k, _TEXT_AT], size):
            return at + size, words[k, _CODE]
    return np.int64(-1), np.int64(0)


@_leaf
def _old_row(  # noqa: C901 - one loop, as there is no recursion
    data, at, end, texts, names, first, count, closed, row, spans
):
    """Record the key columns of the row before a change; the position after it, or -1.

    Members are compared with those of the row; others are skipped, or rejected if `closed`.
    """
    for k in range(first, first + count):
        if names[k, _CODE] >= 0:
            spans[names[k, _CODE], 0, row] = 0
    if at >= end or data[at] != 123:
        return -1
    at = _blank(data, at + 1, end)
    if at < end and data[at] == 125:
        return at + 1
    guess = 0
    while at < end:
        match = -1
        for turn in range(count):
            k = first + (guess + turn) % count
            size = names[k, _TEXT_SIZE]
            if end - at >= size and _equal_bytes(data, at, texts, names[k, _TEXT_AT], size):
                match = k
                break
        if match >= 0:
            at += names[match, _TEXT_SIZE]
            guess = match - first + 1
        elif closed or data[at] != _QUOTE:
            return -1
        else:
            at, flags = _text_end(data, at + 1, end)
            if at < 0 or flags:  # it may be a column's name in another spelling
                return -1
            at += 1
        at = _blank(data, at, end)
        if at >= end or data[at] != _COLON:
            return -1
        at = _blank(data, at + 1, end)
        start = at
        nested = at >= end or data[at] in (123, 91)
        at = _value_end(data, at, end) if nested else _scalar_end(data, at, end)
        if at < 0:
            return -1
        if match >= 0 and names[match, _CODE] >= 0:
            spans[names[match, _CODE], 0, row] = start
            spans[names[match, _CODE], 1, row] = at
        at = _blank(data, at, end)
        if at < end and data[at] == 125:
            return at + 1
        if at >= end or data[at] != _COMMA:
            return -1
        at = _blank(data, at + 1, end)
    return -1


@_leaf_inline
def _walk(  # noqa: C901 - a step is a branch
    data, at, end, first, texts, steps, layouts, which, words, names, op_slot, spans, numbers
):
    """Number of rows of an event of a layout; 0 if it has another one, or too many rows.

    Records their values; also some values of events that have another layout.
    """
    step = layouts[which, FIRST]
    row = first
    rows = np.int64(0)
    while True:
        size = steps[step, _TEXT_SIZE]
        if end - at < size or not _equal_bytes(data, at, texts, steps[step, _TEXT_AT], size):
            return 0
        at += size
        kind, slot = steps[step, _KIND], steps[step, _SLOT]
        if kind <= LOOSE:
            at = _column(data, at, end, kind, slot, row, spans, numbers)
        elif kind == END:
            return max(rows, 1) if at == end else 0
        elif kind == ANY:
            nested = at >= end or data[at] in (123, 91)
            at = _value_end(data, at, end) if nested else _scalar_end(data, at, end)
        elif kind == OP:
            at, code = _operation(data, at, end, texts, words)
            numbers[op_slot, first] = code
        elif kind == ABSENT:
            spans[slot, 0, row] = spans[slot, 1, row] = 0
            numbers[slot, row] = 0
        elif kind in (STAMP, SET_STAMP):
            start, number = at, np.int64(0)
            if kind == STAMP and _is_word(data, at, end, _NULL):
                start, at = 0, at + 4
            else:
                at, number = _integer(data, at, end)
            if number < 0:
                return 0
            spans[slot, 0, row] = start
            spans[slot, 1, row] = at
            numbers[slot, row] = number
        elif kind == WHOLE:
            if _is_word(data, at, end, _NULL):
                at += 4
            else:
                at, _ = _integer(data, at, end)
        elif kind == OLD:
            count, closed = layouts[which, NAME_COUNT], layouts[which, CLOSED]
            begin = layouts[which, NAMES]
            at = _old_row(data, at, end, texts, names, begin, count, closed, row, spans)
        elif kind == FIRST_ROW:
            row = first
        elif kind == NEXT_ROW:
            if at < end and data[at] == _COMMA:
                row += 1
                if row >= spans.shape[2]:
                    return 0
                at = _blank(data, at + 1, end)
                step = slot
                continue
            count = row - first + 1
            if rows not in (0, count):
                return 0
            rows = count
            row = first
        if at < 0:
            return 0
        step += 1


@_leaf_inline
def _is_allowed(op, ops):
    if op == 99:
        return ops & 1
    if op == 114:
        return ops & 2
    if op == 117:
        return ops & 4
    return ops & 8 if op == 100 else 0


@_leaf_inline
def _keeps_key(data, row, keys, spans, required):
    """Whether the row before provably has no other key, and has the key if `required`."""
    for k in range(len(keys)):
        before = np.int64(spans[keys[k, 1], 0, row])
        if before == 0:
            if required:
                return False
            continue
        start, end = np.int64(spans[keys[k, 0], 0, row]), np.int64(spans[keys[k, 0], 1, row])
        if start == 0:
            return False
        if data[start - 1] == _QUOTE:
            start, end = start - 1, end + 1
        size = end - start
        if spans[keys[k, 1], 1, row] - before != size:
            return False
        if not _equal_bytes(data, start, data, before, size):
            return False
    return True


@_leaf_inline
def _keep_keys(data, row, rows, keys, spans, required):
    for k in range(row, row + rows):  # noqa: SIM110 - numba has no generators
        if not _keeps_key(data, k, keys, spans, required):
            return False
    return True


_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_OUT, _INTS, _TABLE = types.uint8[::1], types.int64[::1], types.int64[:, ::1]
_SPANS, _OFFSETS = types.int32[:, :, ::1], types.int32[::1]


@cached(
    types.int64(
        _BYTES,
        _INTS,
        _BYTES,
        _TABLE,
        _TABLE,
        _TABLE,
        _TABLE,
        _TABLE,
        types.int64,
        _SPANS,
        _TABLE,
        _OFFSETS,
    )
)
def scan(data, starts, texts, steps, layouts, words, names, keys, op_slot, spans, numbers, found):
    """Find the layout of each event and the values of its rows; returns the number of rows.

    Args:
        data: concatenated events, then `PADDING` bytes.
        starts: where each event starts, and where the last one ends.
        texts: constant texts of all layouts, then `PADDING` bytes.
        steps: of all layouts: position and size of a constant text, what follows it, its slot (of
            `NEXT_ROW` the step of the next row).
        layouts: see `scanning.FIRST` and those after it.
        words: of operations: position and size of the text, the operation.
        names: of members of rows: position and size of the name, the slot of a key column before.
        keys: pairs of slots: of a key column, and of the same before.
        op_slot: the slot of the operation; the moment of the change has the next one.
        spans: out: by slot and row begin and end of a value; 0 for null.
        numbers: out: by slot and row the value of integers and booleans, 1 for texts with escapes
            and 2 for those beyond ASCII (or both).
        found: out: by row its event, ascending. Events that have no layout have no row.
    """
    last, row = np.int64(0), np.int64(0)
    for event in range(len(starts) - 1):
        for turn in range(len(layouts)):
            index = (last + turn) % len(layouts)
            at, end = starts[event], starts[event + 1]
            if row >= spans.shape[2]:
                return row
            rows = _walk(
                data,
                at,
                end,
                row,
                texts,
                steps,
                layouts,
                index,
                words,
                names,
                op_slot,
                spans,
                numbers,
            )
            if rows == 0:
                continue
            op = layouts[index, OP_CODE] or numbers[op_slot, row]
            if not _is_allowed(op, layouts[index, OPS]):
                break
            required = layouts[index, KEEPS_KEY] == 2
            if layouts[index, KEEPS_KEY] and not _keep_keys(data, row, rows, keys, spans, required):
                break
            found[row] = event
            numbers[op_slot, row] = op
            for k in range(row + 1, row + rows):
                found[k] = event
                numbers[op_slot, k] = op
                spans[op_slot + 1, 0, k] = spans[op_slot + 1, 0, row]
                spans[op_slot + 1, 1, k] = spans[op_slot + 1, 1, row]
                numbers[op_slot + 1, k] = numbers[op_slot + 1, row]
            row += rows
            last = index
            break
    return row


@_leaf
def _put_character(out, at, code):
    if code < 0x80:
        out[at] = code
        return at + 1
    if code < 0x800:
        out[at] = 0xC0 | (code >> 6)
    elif code < 0x10000:
        out[at] = 0xE0 | (code >> 12)
    else:
        out[at] = 0xF0 | (code >> 18)
        at += 1
        out[at] = 0x80 | ((code >> 12) & 63)
    if code >= 0x800:
        at += 1
        out[at] = 0x80 | ((code >> 6) & 63)
    out[at + 1] = 0x80 | (code & 63)
    return at + 2


@_leaf
def _put_escaped(data, at, end, out, to):
    """Write a checked text without its escapes; the position after it."""
    while at < end:
        byte = data[at]
        if byte != _BACKSLASH:
            out[to] = byte
            to, at = to + 1, at + 1
            continue
        letter = data[at + 1]
        at += 2
        if letter == 117:
            code = _hexadecimal(data, at)
            at += 4
            if 0xD800 <= code <= 0xDBFF:
                code = 0x10000 + ((code - 0xD800) << 10) + (_hexadecimal(data, at + 2) - 0xDC00)
                at += 6
            to = _put_character(out, to, code)
            continue
        if letter == 98:
            letter = np.uint8(8)
        elif letter == 102:
            letter = np.uint8(12)
        elif letter == 110:
            letter = np.uint8(10)
        elif letter == 114:
            letter = np.uint8(13)
        elif letter == 116:
            letter = np.uint8(9)
        out[to] = letter
        to += 1
    return to


@cached(types.int64(_BYTES, types.int64, _OFFSETS, _OFFSETS, _INTS, _OFFSETS, _OUT))
def copy_texts(data, rows, begins, ends, flags, offsets, out):
    """Concatenate texts, escapes resolved; returns their size.

    Args:
        data: as for `scan`.
        rows: their number.
        begins: by row.
        ends: by row.
        flags: by row, as `scan` returns them.
        offsets: out: where each text starts, and where the last one ends.
        out: the texts, with room for what is between `begins` and `ends`, and `PADDING`.
    """
    to = np.int64(0)
    for k in range(rows):
        offsets[k] = to
        at, end = np.int64(begins[k]), np.int64(ends[k])
        if flags[k] & _ESCAPES:
            to = _put_escaped(data, at, end, out, to)
            continue
        size = end - at
        for step in range(0, size, 8):
            _put_word(out, to + step, _load_word(data, at + step))
        to += size
    offsets[rows] = to
    return to


_SIX_BITS = np.full(256, 64, np.int64)
"""Values of base64's letters; 64 of other bytes."""

for _value, _letter in enumerate(string.ascii_letters.swapcase() + string.digits + "+/"):
    _SIX_BITS[ord(_letter)] = _value


@_leaf_inline
def _put_base64(data, at, end, out, to):
    """Write the bytes of a base64 text; the position after them, or -1."""
    if (end - at) % 4:
        return -1
    pads = 0
    while pads < 2 and end - pads > at and data[end - pads - 1] == 61:
        pads += 1
    letters, number = np.int64(0), np.int64(0)
    while at < end:
        missing = pads if at + 4 == end else 0
        third = _SIX_BITS[data[at + 2]] if missing < 2 else 0
        fourth = _SIX_BITS[data[at + 3]] if missing < 1 else 0
        number = _SIX_BITS[data[at]] << 18 | _SIX_BITS[data[at + 1]] << 12 | third << 6 | fourth
        letters |= _SIX_BITS[data[at]] | _SIX_BITS[data[at + 1]] | third | fourth
        for k in range(3):
            out[to + k] = (number >> 8 * (2 - k)) & 255
        to += 3 - missing
        at += 4
    # bits behind the last byte are 0
    return -1 if letters & 64 or number & ((1 << 8 * pads) - 1) else to


@cached(types.int64(_BYTES, types.int64, _OFFSETS, _OFFSETS, _OFFSETS, _OUT))
def copy_base64(data, rows, begins, ends, offsets, out):
    """As `copy_texts`, decoding base64; -1 if a text is not base64."""
    to = np.int64(0)
    for k in range(rows):
        offsets[k] = to
        to = _put_base64(data, np.int64(begins[k]), np.int64(ends[k]), out, to)
        if to < 0:
            return to
    offsets[rows] = to
    return to
