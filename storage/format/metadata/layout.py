# SPDX-License-Identifier: Apache-2.0
"""Every path of a table, and the directory name of a partition.

Source: FORMAT.md §1. Paths are plain strings; nothing here touches a file system. Partition
directories are only ever written, never parsed: the manifest holds the authoritative values.
"""

import dataclasses
import decimal
import math
import re
from collections.abc import Sequence

from storage.errors import InternalError, UnsupportedFeatureError
from storage.format.row.row_codec import RowValue, Timestamp
from storage.format.types.types import AtomicType, DataField, TypeRoot, type_name

# Texts of floating-point numbers as Java gives them, for partition directories.
#
# Other engines put `Double.toString` and `Float.toString` into paths, and no metadata holds the
# path, so a reader must arrive at the same text. Up to Java 18 the digits are not always the
# shortest that distinguish a number from its neighbours; newer versions write about one number in
# fifty shorter. The engines mostly run on the older ones, which are followed here to the last
# digit: by their guess of the first digit and their registers. Compared with Java 17 on 240,000
# numbers. Control plane: exact integers, some 10 microseconds a value.


_WHOLE_BITS = 63
"""Whole numbers with more bits are treated like others."""

_POSITIONAL = range(-2, 8)
"""Decimal exponents written without `E`."""


def java_double_text(value: float) -> str:
    """`Double.toString`."""
    return _special(value) or _text(value, 53, -1074)


def java_float_text(value: float) -> str:
    """`Float.toString` of a number that fits in 32 bits."""
    return _special(value) or _text(value, 24, -149)


def _special(value: float) -> str | None:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0:
        return "-0.0" if math.copysign(1, value) < 0 else "0.0"
    return None


def _text(value: float, precision: int, least_exponent: int) -> str:
    """Text of a finite number other than 0."""
    numerator, denominator = abs(value).as_integer_ratio()
    top = numerator.bit_length() - denominator.bit_length()  # exponent of the first bit
    odd = numerator >> _trailing_zeros(numerator)
    width = min(precision, top - least_exponent + 1)  # fewer bits in the smallest numbers
    if denominator == 1 and top < _WHOLE_BITS:
        digits, point = _whole_digits(numerator, top - width)
    else:
        digits, point = _other_digits(odd, top, width)
    sign = "-" if value < 0 else ""
    if point not in _POSITIONAL:
        return f"{sign}{digits[0]}.{digits[1:] or '0'}E{point - 1}"
    if point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    return f"{sign}{digits[:point].ljust(point, '0')}.{digits[point:] or '0'}"


def _trailing_zeros(value: int) -> int:
    return (value & -value).bit_length() - 1


def _whole_digits(value: int, surplus_bits: int) -> tuple[str, int]:
    """A whole number without the digits that its last bits cannot distinguish.

    Returns:
        Its digits, and how many of them are before the point.
    """
    unsure = len(str(1 << surplus_bits - 1)) - 1 if surplus_bits > 1 else 0
    if unsure:
        unit = 10**unsure
        quotient, rest = divmod(value, unit)
        value = quotient + (rest >= unit // 2)
    text = str(value)
    return text.rstrip("0"), len(text) + unsure


def _other_digits(odd: int, top: int, width: int) -> tuple[str, int]:
    """Digits from the first on until the number differs from its neighbours.

    The remainder of the number is `rest` / `unit`; `near` / `unit` is half the distance to the
    next number, grown along with it.

    Args:
        odd: significant bits without zeros at the end.
        top: exponent of the first of them.
        width: bits that a number of this size has.

    Returns:
        The digits, and how many of them are before the point.
    """
    place = _first_place(odd, top)
    rest, unit, near, machine_bits = _decimal_fraction(odd, top, width, place)
    digits: list[int] = []
    low = high = first = True
    while first or not (low or high):
        digit, rest = divmod(rest, unit)
        rest, near = rest * 10, near * 10
        low, high = _exclusions(rest, near, unit * 10, machine_bits)
        if first and digit == 0 and not high:
            place -= 1  # the guess was one too high
        else:
            digits.append(digit)
        if first and not -3 <= place < 8:
            low = high = False
        first = False
    twice = 2 * rest - unit * 10
    odd_digit = digits[-1] % 2 == 1
    up = high and (not low or twice > 0 or (twice == 0 and odd_digit))
    number = int("".join(map(str, digits))) + up
    text = str(number)
    return text.rstrip("0"), place + 1 + len(text) - len(digits)


def _first_place(odd: int, top: int) -> int:
    """Power of ten of the first digit: a guess from the first bits, at most one too high."""
    mantissa = odd / (1 << odd.bit_length() - 1)
    return math.floor((mantissa - 1.5) * 0.289529654 + 0.176091259 + top * 0.301029995663981)


def _decimal_fraction(odd: int, top: int, width: int, place: int) -> tuple[int, int, int, int]:
    """The number over 10^place as a fraction, half a distance in its unit, and register size.

    Small fractions are worked on in registers of 32 or 64 bits, others without bounds (0).
    """
    size = odd.bit_length()
    fives, unit_fives = max(0, -place), max(0, place)
    tiny = max(0, size - top - 1)
    twos = fives + tiny + top
    near_twos = twos - width
    twos -= size - 1
    unit_twos = unit_fives + tiny
    common = min(twos, unit_twos)
    twos, unit_twos, near_twos = twos - common, unit_twos - common, near_twos - common
    if size == 1:
        near_twos -= 1  # below a power of two numbers are nearer
    if near_twos < 0:
        twos, unit_twos, near_twos = twos - near_twos, unit_twos - near_twos, 0
    bits = size + twos + _bits_of_fives(fives)
    unit_bits = unit_twos + 1 + _bits_of_fives(unit_fives + 1)
    machine_bits = 0
    if bits < 64 and unit_bits < 64:
        machine_bits = 32 if bits < 32 and unit_bits < 32 else 64
    return (odd * 5**fives) << twos, 5**unit_fives << unit_twos, 5**fives << near_twos, machine_bits


def _bits_of_fives(count: int) -> int:
    return (5**count).bit_length() if count else 0


def _exclusions(rest: int, near: int, unit: int, machine_bits: int) -> tuple[bool, bool]:
    """Whether the number below, and the one above, is excluded no more by the digits so far."""
    if not machine_bits:
        return rest < near, rest + near > unit
    if _wrapped(near, machine_bits) <= 0:
        return True, True
    return rest < near, _wrapped(rest + near, machine_bits) > unit


def _wrapped(value: int, bits: int) -> int:
    """What is left of a number in a signed register."""
    half = 1 << bits - 1
    return (value + half) % (1 << bits) - half


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
