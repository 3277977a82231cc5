# SPDX-License-Identifier: Apache-2.0
"""An unexpected failure of one record does not fail a batch: bisection isolates and quarantines it.

A row that fails in a later step (placing, writing) is found in the same way; its record is reported
to the driver, which runs the batch again without it (`BatchPlan.unwritable`).

The content of a record may only make the record bad. If decoding raises an unforeseen exception,
the records that raise it alone are found (`bisection`), each becomes a bad record of class
`internal` with the end of the traceback, and the others are decoded without them. Errors of a
task's environment (see `ingest.errors.blames_record`) are not a record's, and propagate.
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
"""Failing rows of one table and task that are isolated; if more fail, rows are not the cause."""


class _UnforeseenError(Exception):
    """An unforeseen error; see its cause."""


def reason_text(error: BaseException) -> str:
    """An unforeseen error and the end of its traceback as storable text of limited length."""
    name, message = type(error).__name__, str(error)[:_MESSAGE]
    frames = "".join(traceback.format_tb(error.__traceback__, limit=-_FRAMES))
    text = f"{name}: {message}: not foreseen, please report it\n{frames[-_TEXT:]}"
    return text.encode("utf-8", "backslashreplace").decode()


def isolated(
    decode: Callable[[RawBatch], DecodeResult],
    attempt: Callable[[RawBatch], object],
    raw: RawBatch,
) -> DecodeResult:
    """Decode records, except those that raise unforeseen errors.

    Args:
        decode: decodes records.
        attempt: tries the same without side effects.
        raw: the records.

    Raises:
        Exception: an error that is not a record's.
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
        lambda low, high: _try_decode(attempt, raw.of(range(low, high))),
        len(raw),
        (_UnforeseenError,),
    )
    if not failing:  # only together: each half separately
        middle = len(raw) // 2
        halves = (range(middle), range(middle, len(raw)))
        return united([isolated(decode, attempt, raw.of(half)) for half in halves])
    excluded = set(failing)
    good_positions = [at for at in range(len(raw)) if at not in excluded]
    parts = [isolated(decode, attempt, raw.of([at])) for at in failing]
    if good_positions:
        parts.append(isolated(decode, attempt, raw.of(good_positions)))
    return united(parts)


def guilty_rows(
    attempt: Callable[[int, int], object], count: int, error: Exception
) -> dict[int, str]:
    """The rows for which a step after decoding fails, and why.

    Args:
        attempt: tries the step with the rows of a range, which may be empty.
        count: of rows.
        error: raised by the step for all of them.

    Raises:
        Exception: `error`, if it is not caused by single rows.
    """
    reasons: dict[int, str] = {}

    def try_range(low: int, high: int) -> None:
        try:
            attempt(low, high)
        except Exception as cause:
            if not blames_record(cause):
                raise
            if high - low == 1:
                reasons[low] = reason_text(cause)
                if len(reasons) > _MOST_ROWS:
                    raise error from cause
            raise _UnforeseenError from cause

    if not blames_record(error):
        raise error
    try:
        try_range(0, 0)
    except _UnforeseenError:
        raise error from None
    if count == 1:
        return {0: reason_text(error)}
    positions = failing_positions(try_range, count, (_UnforeseenError,))
    if not positions or len(positions) == count:
        raise error
    return {at: reasons[at] for at in positions}


def _try_decode(attempt: Callable[[RawBatch], object], raw: RawBatch) -> None:
    try:
        attempt(raw)
    except Exception as error:
        if not blames_record(error):
            raise
        raise _UnforeseenError from error
