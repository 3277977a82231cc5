# SPDX-License-Identifier: Apache-2.0
"""What defines a materialized table, as Paimon keeps it in the options of its schema. Pure.

Source: SEMANTICS.md §L.2, Apache Paimon's `materialized-table.*` options and Flink's rules on
periods. Refreshes are due at whole multiples of the freshness (from 1970 in the given zone).
Where `partition.fields.<column>.date-formatter` says which time a partition holds, the refresh that
is due at a time writes the partition of the period that ends then.
"""

import dataclasses
import datetime
import re

from storage.errors import InvalidOptionError, InvalidRequestError, UnsupportedFeatureError
from storage.format.metadata.schema import TableSchema
from storage.format.metadata.snapshot import SnapshotStore
from storage.format.types.types import AtomicType, TypeRoot
from storage.options.options import option_value

MATERIALIZED_TABLE = "materialized-table"
"""Value of the option `type`."""

REFRESH_USER = "materialized-table-refresh"
"""Prefix of the users that commit refreshes; their snapshots record when one took place."""

_PREFIX = "materialized-table."
_UNITS_MS = {"second": 1_000, "minute": 60_000, "hour": 3_600_000, "day": 86_400_000}
_DEFAULT_FRESHNESS = (1, "hour")
"""Flink's default of tables that are refreshed in full."""

_FORMATTER = re.compile(r"partition\.fields\.(.+)\.date-formatter")
_PATTERNS = {"yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S"}
_MOST_PERIODS = 1_000


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MaterializedTable:
    """The definition of a materialized table.

    Attributes:
        query: whose result the table holds; its names are fully qualified.
        freshness: number and unit (`second`, `minute`, `hour`, `day`).
        declared_mode: `automatic` or `full`.
        suspended: whether scheduled refreshes are off.
    """

    query: str
    freshness: tuple[int, str]
    declared_mode: str = "automatic"
    suspended: bool = False

    @staticmethod
    def of(query: str, freshness: tuple[str, str] | None, mode: str | None) -> "MaterializedTable":
        """A definition as a statement gives it.

        Args:
            freshness: number and unit as texts; None: one hour.
            mode: `full`, `continuous` or None.

        Raises:
            InvalidRequestError: the freshness or the mode is invalid.
            UnsupportedFeatureError: continuous refreshes.
        """
        if mode == "continuous":
            raise UnsupportedFeatureError(
                "REFRESH_MODE = CONTINUOUS is not supported",
                detail="a continuous refresh is a separate streaming job, which does not end",
                hint="write REFRESH_MODE = FULL, or leave it out: refreshes are then scheduled",
            )
        if mode not in (None, "full"):
            raise InvalidRequestError(
                "there is no such refresh mode", hint="write FULL", value=mode
            )
        number, unit = freshness or (str(_DEFAULT_FRESHNESS[0]), _DEFAULT_FRESHNESS[1])
        if unit.removesuffix("s") not in _UNITS_MS or not number.strip().isdecimal():
            raise InvalidRequestError(
                "invalid freshness",
                hint="write FRESHNESS = INTERVAL '<n>' SECOND, MINUTE, HOUR or DAY",
                value=f"{number} {unit}",
            )
        if int(number) == 0:
            raise InvalidRequestError("the freshness must be positive", value=number)
        period = (int(number), unit.removesuffix("s"))
        return MaterializedTable(query=query, freshness=period, declared_mode=mode or "automatic")

    @staticmethod
    def from_schema(schema: TableSchema) -> "MaterializedTable":
        """The definition in the options of a schema, of any writer.

        Raises:
            InvalidRequestError: the table is no materialized table, or lacks its query.
            UnsupportedFeatureError: it is refreshed continuously by another engine.
        """
        options = schema.options
        query = option_value(options, f"{_PREFIX}definition-query")
        if option_value(options, "type") != MATERIALIZED_TABLE or not query:
            raise InvalidRequestError("not a materialized table")
        if option_value(options, f"{_PREFIX}refresh-mode") == "continuous":
            raise UnsupportedFeatureError(
                "the table is refreshed continuously by another engine",
                hint="refresh it there, or create it again with REFRESH_MODE = FULL",
            )
        number = str(option_value(options, f"{_PREFIX}interval-freshness") or "1")
        unit = option_value(options, f"{_PREFIX}interval-freshness.time-unit") or "hour"
        if not number.isdecimal() or int(number) == 0:
            raise InvalidOptionError(
                "invalid freshness", option=f"{_PREFIX}interval-freshness", value=number
            )
        return MaterializedTable(
            query=query,
            freshness=(int(number), unit),
            declared_mode=option_value(options, f"{_PREFIX}logical-refresh-mode") or "automatic",
            suspended=option_value(options, f"{_PREFIX}refresh-status") == "suspended",
        )

    def options(self) -> dict[str, str]:
        """The table options that hold the definition, with Paimon's names and values."""
        return {
            "type": MATERIALIZED_TABLE,
            f"{_PREFIX}definition-query": self.query,
            f"{_PREFIX}interval-freshness": str(self.freshness[0]),
            f"{_PREFIX}interval-freshness.time-unit": self.freshness[1].upper(),
            f"{_PREFIX}logical-refresh-mode": self.declared_mode.upper(),
            f"{_PREFIX}refresh-mode": "FULL",
            f"{_PREFIX}refresh-status": "SUSPENDED" if self.suspended else "ACTIVATED",
        }

    @property
    def freshness_ms(self) -> int:
        """The freshness [ms]."""
        return self.freshness[0] * _UNITS_MS[self.freshness[1]]

    def periods(self, last_ms: int | None, now_ms: int) -> list[int]:
        """Ends of the periods that are over and not refreshed yet [epoch ms], ascending.

        Args:
            last_ms: when the table was refreshed last; None: never.
            now_ms: current time.

        Returns:
            Empty: nothing is due. After a long pause only the newest thousand.
        """
        length = self.freshness_ms
        newest = now_ms // length
        oldest = newest if last_ms is None else last_ms // length + 1
        return [end * length for end in range(max(oldest, newest - _MOST_PERIODS + 1), newest + 1)]

    def partition(
        self, schema: TableSchema, end_ms: int, zone: datetime.tzinfo = datetime.UTC
    ) -> dict[str, str]:
        """The partition of the period that ends at a time; empty: the whole table.

        Raises:
            InvalidOptionError: a pattern has a letter without meaning here.
        """
        start = datetime.datetime.fromtimestamp((end_ms - self.freshness_ms) / 1000, zone)
        return {column: start.strftime(pattern) for column, pattern in _formatters(schema).items()}


def check_formatters(schema: TableSchema) -> None:
    """Check the options that say which time a partition holds.

    Raises:
        InvalidOptionError: a column is no partition column of type STRING, or a pattern is wrong.
    """
    texts = {
        field.name
        for field in schema.partition_fields
        if isinstance(field.type, AtomicType) and field.type.root is TypeRoot.VARCHAR
    }
    for column in _formatters(schema):
        if column not in texts:
            raise InvalidOptionError(
                "a date formatter needs a partition column of type STRING",
                option=f"partition.fields.{column}.date-formatter",
            )


def _formatters(schema: TableSchema) -> dict[str, str]:
    patterns = {}
    for key, text in schema.options.items():
        match = _FORMATTER.fullmatch(key)
        if match is None:
            continue
        pattern = re.sub("|".join(_PATTERNS), lambda part: _PATTERNS[part[0]], text)
        if re.search(r"[A-Za-z]", re.sub(r"%[YmdHMS]", "", pattern)):
            raise InvalidOptionError(
                "a date pattern contains an unsupported letter",
                hint=f"it may contain {', '.join(_PATTERNS)} and other characters",
                option=key,
                value=text,
            )
        patterns[match[1]] = pattern
    return patterns


def last_refresh_ms(snapshots: SnapshotStore) -> int | None:
    """When the table was refreshed last [epoch ms]; None: never, or before its oldest snapshot."""
    for snapshot_id in reversed(snapshots.ids()):
        snapshot = snapshots.read(snapshot_id)
        if snapshot.commit_user.startswith(REFRESH_USER):
            return snapshot.time_ms
    return None
