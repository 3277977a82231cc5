# SPDX-License-Identifier: Apache-2.0
"""The rows of the option table, and the parsers of option texts.

Owns the Paimon spellings of sizes ("128 mb") and durations ("1 h"), case-insensitive, with or
without a space. Which options exist is in `table`; their typed use is in `options`.
"""

import dataclasses
import enum
import re
from collections.abc import Callable, Mapping
from typing import Any

from storage.errors import InvalidOptionError

_SIZE_UNITS = {
    **dict.fromkeys(("", "b", "bytes"), 1),
    **dict.fromkeys(("k", "kb", "kibibytes"), 1 << 10),
    **dict.fromkeys(("m", "mb", "mebibytes"), 1 << 20),
    **dict.fromkeys(("g", "gb", "gibibytes"), 1 << 30),
    **dict.fromkeys(("t", "tb", "tebibytes"), 1 << 40),
}
_NANOSECONDS = {
    **dict.fromkeys(("ns", "nano", "nanos", "nanosecond", "nanoseconds"), 1),
    **dict.fromkeys(("µs", "us", "micro", "micros", "microsecond", "microseconds"), 1_000),
    **dict.fromkeys(("", "ms", "milli", "millis", "millisecond", "milliseconds"), 1_000_000),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1_000_000_000),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60_000_000_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000_000_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000_000_000),
}
_ESCAPES = re.compile(r"\\(?:u([0-9a-fA-F]{4})|([tnrb0\\]))")
_CHARACTERS = {"t": "\t", "n": "\n", "r": "\r", "b": "\b", "0": "\0", "\\": "\\"}
_QUANTITY = re.compile(r"\s*(\d+)\s*(\D*?)\s*\Z")


def memory_size(value: str) -> int:
    """Bytes of a size such as `128 mb`, `64kb`, `1 g` or a bare number of bytes [bytes].

    Raises:
        ValueError: it is not valid.
    """
    return _quantity(value, _SIZE_UNITS, "a size such as `128 mb`")


def duration_ms(value: str) -> int:
    """Milliseconds of a duration such as `1 h`, `30 min`, `10s` or a bare number [ms].

    Raises:
        ValueError: it is not valid.
    """
    return _quantity(value, _NANOSECONDS, "a duration such as `10 min`") // 1_000_000


def _quantity(value: str, units: dict[str, int], description: str) -> int:
    match = _QUANTITY.match(value)
    unit = None if match is None else units.get(match.group(2).lower())
    if match is None or unit is None:
        raise ValueError(description)
    return int(match.group(1)) * unit


def integer(value: str) -> int:
    """A whole number.

    Raises:
        ValueError: it is not valid.
    """
    try:
        return int(value.strip())
    except ValueError:
        raise ValueError("a whole number") from None


def decimal_number(value: str) -> float:
    """A number with a fraction.

    Raises:
        ValueError: it is not valid.
    """
    try:
        return float(value.strip())
    except ValueError:
        raise ValueError("a number") from None


def boolean(value: str) -> bool:
    """`true` or `false`, any case.

    Raises:
        ValueError: it is neither.
    """
    lowered = value.strip().lower()
    if lowered not in ("true", "false"):
        raise ValueError("`true` or `false`")
    return lowered == "true"


def text(value: str) -> str:
    """The text as it is, without surrounding blanks."""
    return value.strip()


def separator(value: str) -> str:
    r"""The text with its blanks; `\t`, `\n`, `\r`, `\\` and `\uXXXX` stand for characters."""
    return _ESCAPES.sub(_unescaped, value)


def character(value: str) -> str:
    r"""One character, which may be written as in `separator`.

    Raises:
        ValueError: it is not one.
    """
    letter = value if len(value) == 1 else separator(value)
    if len(letter) != 1:
        raise ValueError(r"one character, such as `,` or `\t`")
    return letter


def _unescaped(match: re.Match[str]) -> str:
    return chr(int(match[1], 16)) if match[1] else _CHARACTERS[match[2]]


def name_list(value: str) -> tuple[str, ...]:
    """A comma-separated list of names; empty items are left out."""
    return tuple(item for item in (part.strip() for part in value.split(",")) if item)


def several(*allowed: str) -> Callable[[str], tuple[str, ...]]:
    """A parser of a comma-separated list of some words, at least one."""
    parse_item = choice(*allowed)

    def parse(value: str) -> tuple[str, ...]:
        words = tuple(dict.fromkeys(parse_item(item) for item in name_list(value)))
        if not words:
            raise ValueError(f"some of {', '.join(allowed)}")
        return words

    return parse


def per_level(parse: Callable[[str], str]) -> Callable[[str], dict[int, str]]:
    """A parser of values by level, written `0:avro,3:parquet`."""

    def parse_all(value: str) -> dict[int, str]:
        by_level = {}
        for item in name_list(value):
            level, colon, word = item.partition(":")
            if not (colon and level.strip().isdecimal() and word.strip()):
                raise ValueError("values by level such as `0:avro,3:parquet`")
            by_level[int(level)] = parse(word)
        return by_level

    return parse_all


def choice(*allowed: str) -> Callable[[str], str]:
    """A parser of one of several words (case-insensitive, `_` counts as `-`)."""

    def parse(value: str) -> str:
        lowered = value.strip().lower().replace("_", "-")
        if lowered not in allowed:
            raise ValueError("one of " + ", ".join(f"`{word}`" for word in allowed))
        return lowered

    return parse


def codec_of(compression: str, codecs: Mapping[str, str], file_format: str) -> str:
    """The name that a file format has for a `file.compression`.

    Raises:
        InvalidOptionError: it has none.
    """
    codec = codecs.get(compression.lower())
    if codec is None:
        raise InvalidOptionError(
            f"{file_format} files cannot have this compression",
            hint=f"use one of {', '.join(codecs)}",
            compression=compression,
        )
    return codec


class Treatment(enum.Enum):
    """What Lakeward does with an option."""

    HONOUR = "honour"
    IGNORE = "ignore"
    REFUSE = "refuse"


class Access(enum.Flag):
    """The accesses that a value that is not implemented blocks."""

    WRITE = enum.auto()
    READ = enum.auto()
    BOTH = WRITE | READ


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One row of the option table.

    Attributes:
        key: its name; `<…>` stands for any text without the literal parts around it.
        parse: text to value; raises ValueError whose message says what is expected.
        default: text of the default, or None when the option has none of its own.
        doc: one or two sentences: what it does and what changes with its value.
        unit: unit of the parsed value, empty when it has none.
        mutable: whether it may change after the first snapshot.
        treatment: honoured, ignored because results cannot change, or refused.
        attribute: where `TableOptions` keeps the value; empty when it does not.
        least: of the values, None = unbounded.
        implemented: the only values that are implemented (parsed); None = all of them.
        blocks: the accesses that other values block.
    """

    key: str
    parse: Callable[[str], Any]
    default: str | None
    doc: str
    unit: str = ""
    mutable: bool = True
    treatment: Treatment = Treatment.HONOUR
    attribute: str = ""
    aliases: tuple[str, ...] = ()
    least: int | None = None
    implemented: tuple[Any, ...] | None = None
    blocks: Access = Access.BOTH

    def value(self, raw: str) -> Any:
        """The parsed value.

        Raises:
            InvalidOptionError: the text does not parse.
        """
        try:
            return self.parse(raw)
        except ValueError as error:
            raise InvalidOptionError(
                "the value of an option cannot be read",
                hint=f"give {error}",
                option=self.key,
                value=raw,
            ) from error

    def pattern(self) -> re.Pattern[str]:
        """A regular expression of the keys meant by a key with `<…>` parts."""
        parts = re.split(r"<[^>]*>", self.key)
        return re.compile("(.+)".join(re.escape(part) for part in parts) + r"\Z")


def row(
    key: str,
    parse: Callable[[str], Any],
    default: str | None,
    doc: str,
    unit: str = "",
    *,
    implemented: tuple[Any, ...] | None = None,
    treatment: Treatment = Treatment.HONOUR,
    **more: Any,
) -> Option:
    """A row without an attribute of its own; `more` as in `Option`.

    An honoured one is read with `options.option_value`, where only the texts of a schema are
    available.
    """
    if treatment is Treatment.REFUSE and implemented is None:
        implemented = () if default is None else (parse(default),)
    return Option(
        key=key,
        parse=parse,
        default=default,
        doc=doc,
        unit=unit,
        implemented=implemented,
        treatment=treatment,
        **more,
    )


def option(
    key: str,
    parse: Callable[[str], Any],
    default: str | None,
    doc: str,
    unit: str = "",
    **more: Any,
) -> Any:
    """An attribute of a group of `TableOptions`, declared by its row; arguments as in `row`."""
    return dataclasses.field(metadata={"row": row(key, parse, default, doc, unit, **more)})


def rows_of(group: type) -> tuple[Option, ...]:
    """The rows of a group of options: those of its attributes, then those without one."""
    rows = [
        dataclasses.replace(field.metadata["row"], attribute=field.name)
        for field in dataclasses.fields(group)
    ]
    return (*rows, *getattr(group, "ROWS", ()))


def refused(
    key: str,
    parse: Callable[[str], Any],
    default: str | None,
    doc: str,
    *,
    blocks: Access = Access.WRITE,
    mutable: bool = True,
) -> Option:
    """A row whose values other than the default are refused."""
    return row(key, parse, default, doc, mutable=mutable, treatment=Treatment.REFUSE, blocks=blocks)


def ignored(
    doc: str, *rows: tuple[str, Callable[[str], Any], str | None], mutable: bool = True
) -> tuple[Option, ...]:
    """Rows (key, parse, default) without effect, for one reason."""
    return tuple(
        row(key, parse, default, doc, mutable=mutable, treatment=Treatment.IGNORE)
        for key, parse, default in rows
    )
