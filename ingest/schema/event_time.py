# SPDX-License-Identifier: Apache-2.0
"""Event time of a table: `tables[].watermark` = `<column> - <interval>`.

The watermark of a snapshot is the highest value of the column among all rows committed so far, less
the interval. Tasks report the highest value of their rows; the driver puts the difference into the
commit, and storage never lets it go back. Partitions of a topic that are silent do not hold it.
A column without zone counts as UTC, which is how Paimon keeps it.
"""

import dataclasses
import functools

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.config.setting_kinds import duration
from ingest.config.settings import Settings
from storage.errors import InvalidOptionError
from storage.format.metadata.schema import TableSchema
from storage.format.types.types import AtomicType, TypeRoot

_SEPARATOR = " - "
_ROOTS = (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ)


@dataclasses.dataclass(frozen=True, slots=True)
class EventTime:
    """A setting `watermark`.

    Attributes:
        column: of the table.
        delay_ms: how late rows may be [ms].
    """

    column: str
    delay_ms: int


@functools.lru_cache(maxsize=1024)
def event_time(text: str) -> EventTime:
    """Read a setting.

    Raises:
        ValueError: it is not `<column> - <interval>`.
    """
    column, separator, interval = text.rpartition(_SEPARATOR)
    if not separator or not column.strip():
        raise ValueError("`<column> - <interval>`, such as `created_at - 30s`")
    return EventTime(column.strip(), round(1000 * duration.parse(interval.strip())))


def check_watermarks(settings: Settings) -> None:
    """Refuse rules that cannot be read.

    Raises:
        InvalidOptionError: names the rule.
    """
    for number, rule in enumerate(settings.tables):
        if rule.watermark is None:
            continue
        try:
            event_time(rule.watermark)
        except ValueError as wanted:
            raise InvalidOptionError(
                "invalid value of a setting",
                detail=f"expected {wanted}",
                key=f"tables[{number}].watermark",
                value=rule.watermark,
            ) from wanted


def watermark_refused(schema: TableSchema, text: str) -> str:
    """Why a table of this schema cannot have the watermark; "" when it can."""
    column = event_time(text).column
    if column not in schema.field_names:
        return (
            f"watermark: the table has no column {column}; it has "
            f"{', '.join(schema.field_names)}: correct `watermark` of its rule, or add the column "
            "by `computed`"
        )
    type_ = schema.field(column).type
    if not isinstance(type_, AtomicType) or type_.root not in _ROOTS:
        return (
            f"watermark: column {column} is no TIMESTAMP: name another, or make one by `computed`, "
            f"such as `{column}_at = cast({column} as timestamp)`"
        )
    return ""


def watermark_of(settings: Settings, table: str, event_time_ms: int | None) -> int | None:
    """The watermark of a commit whose rows reach an event time [epoch ms]; None = it has none."""
    text = settings.rule_value(table, lambda rule: rule.watermark)
    if text is None or event_time_ms is None:
        return None
    return event_time_ms - event_time(text).delay_ms


def highest_ms(rows: pa.RecordBatch, column: str) -> int | None:
    """The highest event time of some rows [epoch ms, rounded down]; None when there is none."""
    index = rows.schema.get_field_index(column)
    if index < 0 or not pa.types.is_timestamp(rows.schema.field(index).type):
        return None
    values = rows.column(index)
    if values.null_count == len(values):
        return None
    unit = values.type.unit
    highest = np.datetime64(pc.max(values).value, unit)
    return int(highest.astype("datetime64[ms]").astype(np.int64))
