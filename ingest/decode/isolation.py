# SPDX-License-Identifier: Apache-2.0
"""An unexpected failure of one record fails no batch: it is isolated by bisection, and quarantined.

A row that a later step cannot take (placing, writing) is found the same way; its record is named to
the driver, which runs the batch again without it (`BatchPlan.unwritable`).

What a record holds may only make the record bad. Where decoding raises what no path foresees, the
records that raise alone are found (`halving`), each becomes a bad record of class `internal` with
the end of the traceback, and the others are decoded without them. Errors of what a task works with
(`ingest.errors.blames_record`) are no record's, and pass.
"""

import traceback
from collections.abc import Callable

from ingest.decode.bisection import failing_positions
from ingest.decode.events import DecodeResult
from ingest.decode.outcome import bad_record, united
from ingest.errors import blames_record
from ingest.source.records import RawBatch

ERROR_CLASS = "internal"
_FRAMES = 12
_MESSAGE = 500
_TEXT = 6_000
_MOST_ROWS = 100
"""Failing rows of one table and task that are isolated; where more fail, rows are not the cause."""


class _UnforeseenError(Exception):
    """Something that no path foresees; its cause says what."""


def reason_text(error: BaseException) -> str:
    """An unforeseen error and the end of its traceback, bounded, as text that can be stored."""
    name, said = type(error).__name__, str(error)[:_MESSAGE]
    frames = "".join(traceback.format_tb(error.__traceback__, limit=-_FRAMES))
    text = f"{name}: {said}: not foreseen, please report it\n{frames[-_TEXT:]}"
    return text.encode("utf-8", "backslashreplace").decode()


def isolated(
    decode: Callable[[RawBatch], DecodeResult],
    attempt: Callable[[RawBatch], object],
    raw: RawBatch,
) -> DecodeResult:
    """Decode records, those excepted that raise what is not foreseen.

    Args:
        decode: decodes records for good.
        attempt: tries the same, and leaves nothing behind.
        raw: the records.

    Raises:
        Exception: an error that is no record's.
    """
    try:
        return decode(raw)
    except Exception as error:
        if not blames_record(error):
            raise
        if len(raw) == 1:
            refused = bad_record(raw, 0, ERROR_CLASS, reason_text(error))
            return DecodeResult([], [refused], [], {})
    failing = failing_positions(
        lambda low, high: _tried(attempt, raw.of(range(low, high))), len(raw), (_UnforeseenError,)
    )
    if not failing:  # only together: each half for itself
        middle = len(raw) // 2
        halves = (range(middle), range(middle, len(raw)))
        return united([isolated(decode, attempt, raw.of(half)) for half in halves])
    removed = set(failing)
    rest = [at for at in range(len(raw)) if at not in removed]
    parts = [isolated(decode, attempt, raw.of([at])) for at in failing]
    if rest:
        parts.append(isolated(decode, attempt, raw.of(rest)))
    return united(parts)


def guilty_rows(
    attempt: Callable[[int, int], object], count: int, error: Exception
) -> dict[int, str]:
    """The rows that a step after decoding fails for, and why.

    Args:
        attempt: tries the step with the rows from a position up to another; none are tried, too.
        count: of rows.
        error: what the step raised for all of them.

    Raises:
        Exception: `error`, where it is not about single rows.
    """
    whys: dict[int, str] = {}

    def tried(low: int, high: int) -> None:
        try:
            attempt(low, high)
        except Exception as other:
            if not blames_record(other):
                raise
            if high - low == 1:
                whys[low] = reason_text(other)
                if len(whys) > _MOST_ROWS:
                    raise error from other
            raise _UnforeseenError from other

    if not blames_record(error):
        raise error
    try:
        tried(0, 0)
    except _UnforeseenError:
        raise error from None
    if count == 1:
        return {0: reason_text(error)}
    found = failing_positions(tried, count, (_UnforeseenError,))
    if not found or len(found) == count:
        raise error
    return {at: whys[at] for at in found}


def _tried(attempt: Callable[[RawBatch], object], raw: RawBatch) -> None:
    try:
        attempt(raw)
    except Exception as error:
        if not blames_record(error):
            raise
        raise _UnforeseenError from error
