# SPDX-License-Identifier: Apache-2.0
"""The words of `sink.type.mapping`: which type a source column gets when there is a choice.

Eight are those of Paimon's CDC actions (`--type_mapping`). They hold for new columns; the type of a
column that exists does not change because of them. `types.md` has the whole table of types.
"""

import dataclasses
import difflib
import enum
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType

from storage.errors import InvalidOptionError
from storage.format.types.types import AtomicType, DataType, TypeRoot

__all__ = ["DEFAULT_MAPPING", "MAPPING_WORDS", "Infinity", "TypeMapping"]

KEY = "sink.type.mapping"


class Infinity(enum.Enum):
    """What becomes of infinite dates and timestamps, which no column can hold."""

    REFUSE = "the record is bad"
    NULL = "infinity-to-null"
    BOUNDS = "infinity-to-bounds"


MAPPING_WORDS: Mapping[str, str] = MappingProxyType(
    {
        "tinyint1-not-bool": "TINYINT(1) stays a number; always so here",
        "to-nullable": "columns take null although the source's do not; always so here",
        "to-string": "every column is STRING",
        "char-to-string": "CHAR(n) and VARCHAR(n) are STRING",
        "longtext-to-bytes": "LONGTEXT is BYTES (UTF-8)",
        "bigint-unsigned-to-bigint": "BIGINT UNSIGNED is BIGINT; larger numbers are bad records",
        "decimal-no-change": "the type of DECIMAL columns stays; what does not fit is a bad record",
        "no-change": "the type of no column changes; what does not fit is a bad record",
        "unsigned-bigint-to-decimal": "BIGINT UNSIGNED is DECIMAL(20, 0), also when the connector "
        "sends it as a signed number",
        "infinity-to-null": "infinite dates and timestamps are null",
        "infinity-to-bounds": "they are the first moment of the year 1 or the last of the year "
        "9999",
        "time-to-bigint": "TIME is BIGINT: microseconds, below zero and beyond a day too",
        "time-to-string": "TIME is STRING: `[-]HH:MM:SS[.ffffff]`",
        "cut-fractions": "fractions of a second in texts that are finer than the column's are cut",
        "zoned-to-string": "timestamps with a zone are STRING, as sent",
        "bits-to-bigint": "base64 text in a BIGINT column is BIT(n), where events have no schema",
    }
)
"""Words of the setting, and what each does."""

_CONTRARY = (
    ("bigint-unsigned-to-bigint", "unsigned-bigint-to-decimal"),
    ("infinity-to-null", "infinity-to-bounds"),
    ("time-to-bigint", "time-to-string"),
    ("to-string", "longtext-to-bytes"),
    ("to-string", "time-to-bigint"),
    ("to-string", "unsigned-bigint-to-decimal"),
    ("to-string", "bigint-unsigned-to-bigint"),
)


@dataclasses.dataclass(frozen=True, slots=True)
class TypeMapping:
    """Chosen words; `of` checks them.

    Attributes:
        words: of `MAPPING_WORDS`.
    """

    words: frozenset[str] = frozenset()

    @staticmethod
    def of(words: Iterable[str]) -> "TypeMapping":
        """The mapping that a setting describes.

        Raises:
            InvalidOptionError: a word is unknown, or contradicts another.
        """
        chosen = frozenset(word.strip().lower() for word in words)
        for word in sorted(chosen - MAPPING_WORDS.keys()):
            raise InvalidOptionError(
                f"there is no type mapping {word!r}", hint=_suggestion(word), key=KEY
            )
        for one, other in _CONTRARY:
            if one in chosen and other in chosen:
                raise InvalidOptionError(
                    f"{one} and {other} contradict each other", hint="keep one of them", key=KEY
                )
        return TypeMapping(chosen)

    @property
    def infinity(self) -> Infinity:
        """What becomes of infinite dates and timestamps."""
        chosen = [policy for policy in Infinity if policy.value in self.words]
        return chosen[0] if chosen else Infinity.REFUSE

    def keeps(self, type_: DataType) -> bool:
        """Whether a column of a type is never widened."""
        if "no-change" in self.words:
            return True
        decimal = isinstance(type_, AtomicType) and type_.root is TypeRoot.DECIMAL
        return decimal and "decimal-no-change" in self.words

    def __contains__(self, word: str) -> bool:
        return word in self.words


DEFAULT_MAPPING = TypeMapping()


def _suggestion(word: str, known: Collection[str] = tuple(MAPPING_WORDS)) -> str:
    close = difflib.get_close_matches(word, known, 1)
    return f"did you mean {close[0]}?" if close else f"one of {', '.join(known)}"
