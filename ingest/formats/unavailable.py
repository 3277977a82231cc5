# SPDX-License-Identifier: Apache-2.0
"""Debezium's placeholder for a value it does not have: an unchanged TOAST column of PostgreSQL.

The placeholder takes a form per column type (CDC.md §2.4). It must never be stored as a value.
"""

import base64
import hashlib
import uuid
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ingest.formats.semantic_types import Codec, Kind

__all__ = ["Placeholder"]


class Placeholder:
    """All forms of one configured text (`unavailable.value.placeholder`).

    Args:
        text: as configured on the connector.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._bytes = text.encode()
        self._base64 = base64.b64encode(self._bytes).decode()
        self._codes = list(self._bytes)
        digest = hashlib.md5(self._bytes, usedforsecurity=False).digest()
        self._uuid = str(uuid.UUID(bytes=digest, version=3))

    def is_value(self, value: Any) -> bool:
        """Whether a parsed JSON value is the placeholder in any form."""
        if isinstance(value, str):
            return value in (self.text, self._base64) or self._is_map_text(value)
        if isinstance(value, dict):
            return value == {self.text: self.text}
        if isinstance(value, list):
            return value == self._codes or (
                len(value) == 1 and value[0] in (self.text, self._base64, self._uuid)
            )
        return False

    def _is_map_text(self, value: str) -> bool:
        squeezed = "".join(value.split())
        return squeezed == f'{{"{self.text}":"{self.text}"}}'

    def suspects(self, codec: Codec, column: pa.Array) -> pa.Array | None:
        """Rows of a converted column that may hold the placeholder.

        Returns:
            A mask without nulls, or None when there is surely none. May name too many rows, never
            too few. Numbers cannot hold it: its form for them fails conversion.

        Cost: one substring search over the column's buffer.
        """
        if codec.kind is Kind.ARRAY:
            return self._suspect_lists(codec, column)
        if not (pa.types.is_string(column.type) or pa.types.is_binary(column.type)):
            return None
        data = column.buffers()[2]
        if data is None or self._bytes not in data.to_pybytes():
            return None
        return pc.fill_null(pc.match_substring(column, self._bytes), False)

    def _suspect_lists(self, codec: Codec, column: pa.Array) -> pa.Array | None:
        if codec.element is None:
            return None
        if pa.types.is_integer(column.type.value_type) or pa.types.is_date(column.type.value_type):
            mask = pc.equal(pc.list_value_length(column), len(self._codes))
        elif self._may_hold(column.values):
            mask = pc.equal(pc.list_value_length(column), 1)
        else:
            return None
        mask = pc.fill_null(mask, False)
        return mask if pc.any(mask, min_count=0).as_py() else None

    def _may_hold(self, elements: pa.Array) -> bool:
        if not (pa.types.is_string(elements.type) or pa.types.is_binary(elements.type)):
            return False
        data = elements.buffers()[2]
        if data is None:
            return False
        content = data.to_pybytes()
        return self._bytes in content or self._uuid.encode() in content
