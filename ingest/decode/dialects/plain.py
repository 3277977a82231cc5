# SPDX-License-Identifier: Apache-2.0
"""Plain JSON objects that are only ever appended: every record is an insert.

The table is named after the topic and needs no primary key. Times are ISO text unless
`time_precision_mode` says otherwise. Null values are counted as tombstones and change nothing.
"""

from ingest.decode.dialects.bare_rows import BLOCK, BareRows
from ingest.decode.json.envelopes import Event, Image
from ingest.decode.json.layout import Anatomy
from ingest.decode.shapes import Shape

__all__ = ["PlainJson"]


class PlainJson(BareRows):
    """See the module."""

    @property
    def anatomy(self) -> Anatomy:
        """See `Dialect.anatomy`."""
        return Anatomy(default_op="c", reserved=BLOCK)

    def read(self, topic: str, key: bytes | None, value: bytes | None) -> Event | str:
        """See `Dialect.read`."""
        if value is None:
            return "tombstone"
        block, row = self.split_value(topic, value)
        if row is None:
            return "tombstone"
        return Event(
            source=self.source_of_topic(topic),
            images=(Image("c", None, row),),
            types=b"" if block is None else block.raw,
        )

    def shape(self, event: Event) -> Shape:
        """See `Dialect.shape`."""
        shape = super().shape(event)
        shape.keyless = True
        return shape
