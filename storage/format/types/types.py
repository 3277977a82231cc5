# SPDX-License-Identifier: Apache-2.0
"""Paimon's logical types as frozen values, row kinds and the names of system columns.

Source: FORMAT.md §2.2 and §7.1. What the types look like as text is in `type_text`, how they map
to Arrow in `arrow_types`; this module only says what they are.
"""

import dataclasses
import enum

_ELEMENTS = 536_870_911
_PER_FIELD = 1024


def value_id(owner: int, depth: int) -> int:
    """Id of an array's element or a map's value.

    Args:
        owner: id of the enclosing column or ROW field.
        depth: 1 directly inside it, 2 in a collection inside a collection, and so on.
    """
    return _ELEMENTS + _PER_FIELD * owner + depth


def key_id(owner: int, depth: int) -> int:
    """Id of a map's key or a multiset's element; arguments as in `value_id`."""
    return _ELEMENTS - _PER_FIELD * owner - depth


KEY_PREFIX = "_KEY_"
SEQUENCE_NUMBER = "_SEQUENCE_NUMBER"
VALUE_KIND = "_VALUE_KIND"
KEY_FIELD_ID_START = 1_073_741_823
SEQUENCE_NUMBER_FIELD_ID = 2_147_483_646
VALUE_KIND_FIELD_ID = 2_147_483_645
SYSTEM_FIELD_NAMES = frozenset({SEQUENCE_NUMBER, VALUE_KIND, "_LEVEL", "rowkind", "_ROW_ID"})


class RowKind(enum.IntEnum):
    """The kind of a row, as stored in `_VALUE_KIND`."""

    INSERT = 0
    UPDATE_BEFORE = 1
    UPDATE_AFTER = 2
    DELETE = 3

    @property
    def short(self) -> str:
        """`+I`, `-U`, `+U` or `-D`."""
        return ("+I", "-U", "+U", "-D")[self.value]

    @property
    def retracts(self) -> bool:
        """Whether this kind takes a row away."""
        return self in (RowKind.UPDATE_BEFORE, RowKind.DELETE)


class TypeRoot(enum.Enum):
    """Families of atomic types; the value is the word in the type text."""

    CHAR = "CHAR"
    VARCHAR = "VARCHAR"
    BOOLEAN = "BOOLEAN"
    BINARY = "BINARY"
    VARBINARY = "VARBINARY"
    DECIMAL = "DECIMAL"
    TINYINT = "TINYINT"
    SMALLINT = "SMALLINT"
    INT = "INT"
    BIGINT = "BIGINT"
    FLOAT = "FLOAT"
    DOUBLE = "DOUBLE"
    DATE = "DATE"
    TIME = "TIME"
    TIMESTAMP = "TIMESTAMP"
    TIMESTAMP_LTZ = "TIMESTAMP_LTZ"


MAX_LENGTH = 2_147_483_647


@dataclasses.dataclass(frozen=True, slots=True)
class AtomicType:
    """A scalar type.

    Attributes:
        length: of CHAR/VARCHAR/BINARY/VARBINARY [characters or bytes]; STRING and BYTES are
            VARCHAR and VARBINARY of `MAX_LENGTH`. 0 for other families.
        precision: of DECIMAL, TIME, TIMESTAMP, TIMESTAMP_LTZ [digits]; 0 otherwise.
        scale: of DECIMAL; 0 otherwise.
    """

    root: TypeRoot
    nullable: bool = True
    length: int = 0
    precision: int = 0
    scale: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class ArrayType:
    """A list of one element type."""

    element: "DataType"
    nullable: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class MultisetType:
    """A bag of elements; stored as MAP<element, INT NOT NULL>."""

    element: "DataType"
    nullable: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class MapType:
    """A map."""

    key: "DataType"
    value: "DataType"
    nullable: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class RowType:
    """A nested row."""

    fields: tuple["DataField", ...]
    nullable: bool = True


DataType = AtomicType | ArrayType | MultisetType | MapType | RowType


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DataField:
    """A named, numbered column.

    Attributes:
        id: unique over the whole schema tree, never reused.
        extra: further members of its JSON object as JSON texts by name, kept for rewrites; no
            part of what makes columns equal.
    """

    id: int
    name: str
    type: DataType
    description: str | None = None
    default: str | None = None
    extra: tuple[tuple[str, str], ...] = dataclasses.field(default=(), compare=False)
