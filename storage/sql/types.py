# SPDX-License-Identifier: Apache-2.0
"""Types of columns as SQL writes them: Flink's words, and Spark's that differ."""

from storage.format.types.type_text import parse_type
from storage.format.types.types import DataType

__all__ = ["atomic_type"]

_SYNONYMS = {
    "LONG": "BIGINT",
    "SHORT": "SMALLINT",
    "BYTE": "TINYINT",
    "REAL": "FLOAT",
    "TEXT": "STRING",
    "DATETIME": "TIMESTAMP",
    "TIMESTAMP_NTZ": "TIMESTAMP",
    "INT64": "BIGINT",
    "INT32": "INT",
    "BOOL": "BOOLEAN",
}
_OF_SPARK = {"TIMESTAMP": "TIMESTAMP_LTZ", "BINARY": "BYTES"}
"""Words that mean another type in Spark, when they come without parameters."""


def atomic_type(word: str, parameters: str, zone: str, *, spark: bool) -> DataType:
    """A type that is no ARRAY, MAP, MULTISET or ROW; nullable.

    Args:
        word: such as `DECIMAL`, in any case.
        parameters: such as `(10, 2)`, or empty.
        zone: such as `WITH LOCAL TIME ZONE`, or empty.
        spark: whether the statement is in Spark's spelling.

    Raises:
        InvalidRequestError: there is no such type, or a parameter is out of range.
        UnsupportedFeatureError: a type of newer Paimon versions.
    """
    word = word.upper()
    if spark and not parameters and not zone:
        word = _OF_SPARK.get(word, word)
    word = _SYNONYMS.get(word, word)
    if word == "TIMESTAMP_LTZ":
        word, zone = "TIMESTAMP", "WITH LOCAL TIME ZONE"
    return parse_type(f"{word}{parameters} {zone}".strip())
