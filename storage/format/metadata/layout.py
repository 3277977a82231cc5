# SPDX-License-Identifier: Apache-2.0
"""Every path of a table, and the directory name of a partition.

Source: FORMAT.md §1. Paths are plain strings; nothing here touches a file system. Partition
directories are only ever written, never parsed: the manifest holds the authoritative values.
"""

import dataclasses
import decimal
import re
from collections.abc import Sequence

from storage.errors import InternalError, UnsupportedFeatureError
from storage.format.row.row_codec import RowValue, Timestamp
from storage.format.types.java_numbers import java_double_text, java_float_text
from storage.format.types.type_text import type_name
from storage.format.types.types import AtomicType, DataField, TypeRoot

DEFAULT_PARTITION_NAME = "__DEFAULT_PARTITION__"
POSTPONE_BUCKET = -2

_UNSAFE = re.compile(r'[\x00-\x1f\x7f"#%\'*/:=?\\{}\[\]^]')
_ESCAPED = re.compile(r"%([0-9A-Fa-f]{2})")
_NOT_JAVA_SPACE = frozenset("\x85\xa0\u2007\u202f")
_DAY_MS = 86_400_000


MAIN_BRANCH = "main"


@dataclasses.dataclass(frozen=True, slots=True)
class TableLayout:
    """Paths of one table, or of one branch of it.

    Attributes:
        root: table directory, without a trailing slash.
        branch: branch name; only schemas, snapshots, tags, changelogs and consumers are its own.
        data_directory: option `data-file.path-directory`, between root and partition; or "".
    """

    root: str
    branch: str = MAIN_BRANCH
    data_directory: str = ""

    @property
    def branch_root(self) -> str:
        """Where the branch keeps its own metadata."""
        return (
            self.root if self.branch == MAIN_BRANCH else f"{self.root}/branch/branch-{self.branch}"
        )

    @property
    def branches_dir(self) -> str:
        """Directory that holds the branches."""
        return f"{self.root}/branch"

    def numbered_dir(self, kind: str) -> str:
        """Directory of the documents of a kind: `schema`, `snapshot` or `changelog`."""
        return f"{self.branch_root}/{kind}"

    def numbered_file(self, kind: str, number: int) -> str:
        """One document of a kind."""
        return f"{self.branch_root}/{kind}/{kind}-{number}"

    @property
    def schema_dir(self) -> str:
        """Directory of the schema files."""
        return self.numbered_dir("schema")

    def schema_file(self, schema_id: int) -> str:
        """One schema file."""
        return self.numbered_file("schema", schema_id)

    @property
    def snapshot_dir(self) -> str:
        """Directory of the snapshot files and hints."""
        return self.numbered_dir("snapshot")

    def snapshot_file(self, snapshot_id: int) -> str:
        """One snapshot file."""
        return self.numbered_file("snapshot", snapshot_id)

    @property
    def latest_hint(self) -> str:
        """The file that should hold the newest snapshot id."""
        return f"{self.snapshot_dir}/LATEST"

    @property
    def earliest_hint(self) -> str:
        """The file that should hold the oldest snapshot id."""
        return f"{self.snapshot_dir}/EARLIEST"

    @property
    def changelog_dir(self) -> str:
        """Directory of long-lived changelogs."""
        return self.numbered_dir("changelog")

    @property
    def changelog_latest_hint(self) -> str:
        """The file that should hold the newest id of a long-lived changelog."""
        return f"{self.changelog_dir}/LATEST"

    @property
    def changelog_earliest_hint(self) -> str:
        """The file that should hold the oldest id of a long-lived changelog."""
        return f"{self.changelog_dir}/EARLIEST"

    @property
    def tag_dir(self) -> str:
        """Directory of the tags."""
        return f"{self.branch_root}/tag"

    def tag_file(self, name: str) -> str:
        """One tag."""
        return f"{self.tag_dir}/tag-{name}"

    @property
    def consumer_dir(self) -> str:
        """Directory of consumer progress files."""
        return f"{self.branch_root}/consumer"

    def consumer_file(self, consumer_id: str) -> str:
        """Progress of one consumer."""
        return f"{self.consumer_dir}/consumer-{consumer_id}"

    @property
    def manifest_dir(self) -> str:
        """Directory of manifests, manifest lists and index manifests; shared by all branches."""
        return f"{self.root}/manifest"

    def manifest(self, name: str) -> str:
        """A manifest, manifest list or index manifest."""
        return f"{self.manifest_dir}/{name}"

    @property
    def index_dir(self) -> str:
        """Directory of table index files; shared by all branches."""
        return f"{self.root}/index"

    def index_file(self, name: str) -> str:
        """A hash index or deletion vector file."""
        return f"{self.index_dir}/{name}"

    @property
    def statistics_dir(self) -> str:
        """Directory of table statistics; shared by all branches."""
        return f"{self.root}/statistics"

    def statistics_file(self, name: str) -> str:
        """One statistics file."""
        return f"{self.statistics_dir}/{name}"

    @property
    def data_root(self) -> str:
        """Directory that holds the partitions, or the buckets of an unpartitioned table."""
        return f"{self.root}/{self.data_directory}" if self.data_directory else self.root

    def bucket_dir(self, partition_path: str, bucket: int) -> str:
        """Directory of a bucket's files.

        The partition path is as from `partition_path`.
        """
        name = "bucket-postpone" if bucket == POSTPONE_BUCKET else f"bucket-{bucket}"
        middle = f"/{partition_path}" if partition_path else ""
        return f"{self.data_root}{middle}/{name}"

    def data_file(self, partition_path: str, bucket: int, name: str) -> str:
        """A data, changelog or file index file of a bucket."""
        return f"{self.bucket_dir(partition_path, bucket)}/{name}"


def partition_path(
    values: Sequence[RowValue],
    fields: Sequence[DataField],
    *,
    default_name: str = DEFAULT_PARTITION_NAME,
    legacy: bool = True,
) -> str:
    """Relative directory of a partition, `k1=v1/k2=v2`; "" when there are no partition keys.

    Args:
        values: one per field, in the form `binary_row.decode_row` gives.
        fields: the partition fields in path order.
        default_name: stands for null, empty and blank values.
        legacy: option `partition.legacy-name`: dates and times as numbers.

    Raises:
        UnsupportedFeatureError: a legacy name of bytes, which has no stable text.
    """
    parts = []
    for value, field in zip(values, fields, strict=True):
        text = "" if value is None else value_text(value, field, legacy)
        parts.append(f"{escape(field.name)}={escape(default_name if _blank(text) else text)}")
    return "/".join(parts)


def escape(text: str) -> str:
    """Replace characters that are unsafe in a path element by `%XX`."""
    return _UNSAFE.sub(lambda match: f"%{ord(match[0]):02X}", text)


def unescape(text: str) -> str:
    """Undo `escape`; a `%` not followed by two hex digits stays."""
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text)


def _blank(text: str) -> bool:
    return all(c.isspace() and c not in _NOT_JAVA_SPACE for c in text)


def value_text(value: RowValue, field: DataField, legacy: bool) -> str:  # noqa: C901 - one table
    """One value as in the name of its directory, before escaping; not of null."""
    type_ = field.type
    if not isinstance(type_, AtomicType):
        raise InternalError("partition key has a nested type", column=field.name)
    match type_.root:
        case TypeRoot.BOOLEAN:
            return "true" if value else "false"
        case TypeRoot.DECIMAL:
            return _decimal_text(value)
        case TypeRoot.FLOAT:
            return java_float_text(value)
        case TypeRoot.DOUBLE:
            return java_double_text(value)
        case TypeRoot.DATE if not legacy:
            return _date_text(value)
        case TypeRoot.TIME if not legacy:
            return _time_text(value, 0) + _fraction(value % 1000 * 1_000_000, type_.precision)
        case TypeRoot.TIMESTAMP | TypeRoot.TIMESTAMP_LTZ:
            return _timestamp_text(value, type_.precision, legacy)
        case TypeRoot.BINARY | TypeRoot.VARBINARY if legacy:
            raise UnsupportedFeatureError(
                "a partition key of this type has no stable directory name",
                column=field.name,
                type=type_name(type_),
                hint="set `partition.legacy-name` to false",
            )
        case TypeRoot.BINARY | TypeRoot.VARBINARY:
            return bytes(value).decode("utf-8", "replace")
        case _:
            return str(value)


def _decimal_text(value: decimal.Decimal) -> str:
    # As Java's BigDecimal.toString: scientific only for exponents below -6.
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise InternalError("decimal is not a number", value=value)
    adjusted = exponent + len(digits) - 1
    if adjusted >= -6:
        return f"{value:f}"
    text = "".join(str(digit) for digit in digits)
    mantissa = text if len(text) == 1 else f"{text[0]}.{text[1:]}"
    return f"{'-' if sign else ''}{mantissa}E{adjusted}"


def _date_text(days: int) -> str:
    # Civil date from days since 1970-01-01, proleptic Gregorian, for any year.
    shifted = days + 719_468
    era = shifted // 146_097
    day_of_era = shifted - era * 146_097
    year_of_era = (
        day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096
    ) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted_month = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * shifted_month + 2) // 5 + 1
    month = shifted_month + 3 if shifted_month < 10 else shifted_month - 9
    year = year_of_era + era * 400 + (1 if month <= 2 else 0)
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04d}-{month:02d}-{day:02d}"


def _time_text(millis_of_day: int, nanos_of_milli: int, *, short: bool = False) -> str:
    """`HH:MM:SS`; with `short` as Java's `LocalTime.toString`: no zero parts at the end."""
    seconds, millis = divmod(millis_of_day, 1000)
    minutes, second = divmod(seconds, 60)
    text = f"{minutes // 60:02d}:{minutes % 60:02d}"
    nanos = millis * 1_000_000 + nanos_of_milli
    if not short:
        return f"{text}:{second:02d}"
    if nanos == 0:
        return text if second == 0 else f"{text}:{second:02d}"
    digits = 3 if nanos % 1_000_000 == 0 else 6 if nanos % 1000 == 0 else 9
    return f"{text}:{second:02d}{_fraction(nanos, digits)}"


def _fraction(nanos: int, precision: int) -> str:
    return f".{nanos:09d}"[: precision + 1] if precision else ""


def _timestamp_text(value: Timestamp, precision: int, legacy: bool) -> str:
    days, millis_of_day = divmod(value.millis, _DAY_MS)
    if legacy:
        time = _time_text(millis_of_day, value.nanos_of_milli, short=True)
        return f"{_date_text(days)}T{time}"
    nanos = millis_of_day % 1000 * 1_000_000 + value.nanos_of_milli
    return f"{_date_text(days)} {_time_text(millis_of_day, 0)}{_fraction(nanos, precision)}"


SYSTEM_DATABASE = "sys"
FORBIDDEN = re.compile(r"[/\\$.:\x00-\x1f\x7f]")
"""In names of databases and tables: a name is a directory, `$` begins the name of a system table,
`.` and `:` part a table from its database and its branch (FORMAT.md §12.1)."""


def name_refused(what: str, name: str) -> str:
    """Why a name is not allowed; "" = it is."""
    if not name.strip() or name != name.strip() or FORBIDDEN.search(name):
        return f"this name of a {what} is not allowed"
    if what == "database" and name == SYSTEM_DATABASE:
        return "this name of a database is the system's and not allowed"
    return ""
