# SPDX-License-Identifier: Apache-2.0
"""Chosen words of `sink.type.mapping`: which type a source column gets when there is a choice.

Eight are those of Paimon's CDC actions (`--type_mapping`). They hold for new columns; the type of a
column that exists does not change because of them. `types.md` has the whole table of types.
"""

import dataclasses
import enum
from collections.abc import Iterable

from ingest.config.choices import checked_mapping
from storage.format.types.types import AtomicType, DataType, TypeRoot

__all__ = ["DEFAULT_MAPPING", "Infinity", "TypeMapping"]


class Infinity(enum.Enum):
    """What becomes of infinite dates and timestamps, which no column can hold."""

    REFUSE = "the record is bad"
    NULL = "infinity-to-null"
    BOUNDS = "infinity-to-bounds"


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
        return TypeMapping(frozenset(checked_mapping(words)))

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
