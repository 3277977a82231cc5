# SPDX-License-Identifier: Apache-2.0
"""Values of command line arguments: text in, what `argparse` stores out."""

import argparse
import datetime

from ingest.config.setting_kinds import duration

__all__ = [
    "parse_count",
    "parse_duration_ms",
    "parse_duration_s",
    "parse_moment_ms",
    "parse_pair",
    "parse_partition",
    "parse_positive",
]


def parse_pair(text: str) -> tuple[str, str]:
    """`KEY=VALUE`, for argparse."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise argparse.ArgumentTypeError("write KEY=VALUE")
    return key.strip(), value


def parse_partition(text: str) -> dict[str, str]:
    """`COLUMN=VALUE[,COLUMN=VALUE…]`, for argparse."""
    return dict(parse_pair(part) for part in text.split(","))


def parse_count(text: str) -> int:
    """A whole number from 0, for argparse."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError("not a number")
    return int(text)


def parse_positive(text: str) -> int:
    """A whole number from 1, for argparse."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError("not a number greater than 0")
    return int(text)


def parse_duration_s(text: str) -> float:
    """A time such as `30s`, `12h` or `7d` [s], for argparse."""
    try:
        return float(duration.parse(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"not {error}") from error


def parse_duration_ms(text: str) -> int:
    """The same [ms]."""
    return int(parse_duration_s(text) * 1000)


def parse_moment_ms(text: str) -> int:
    """A moment in ISO 8601 (without zone: UTC), or epoch milliseconds [epoch ms]."""
    if text.isdecimal():
        return int(text)
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError("write 2024-01-31T12:00:00 or epoch ms") from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return int(moment.timestamp() * 1000)
