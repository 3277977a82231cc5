# SPDX-License-Identifier: Apache-2.0
"""Samples of all topics of a source: their size, and records of their beginning and end.

Nothing is committed and no consumer group is joined. The beginning shows the records of a
snapshot, the end those that the source sends now; records in between are not read.
"""

import dataclasses
import itertools
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource

from ingest.config.settings import Settings
from ingest.config.source_settings import (
    FileSourceSettings,
    KafkaSourceSettings,
    SourceSettings,
)
from ingest.decode.events import DecodeResult, SchemaDelta, SourceTable, Target
from ingest.decode.schema_change_events import JsonValue, TableDdl
from ingest.decode.types.conversions import Placeholder
from ingest.errors import SchemaStopError
from ingest.pipeline.decoding import Decoding
from ingest.pipeline.exchange import BatchPlan
from ingest.schema.new_tables import history_schema, quarantine_schema, require_own_table
from ingest.schema.routing import Destination, Verdict, routing_of
from ingest.source.file_lines import (
    POSITION_BITS,
    ListedFile,
    cut_after,
    last_complete_end,
    list_files,
    unpacked_size,
)
from ingest.source.kafka import KafkaSource
from ingest.source.kafka_client import admin_config, broker_error
from ingest.source.open import open_ranges
from ingest.source.records import RawBatch, SourceRange
from ingest.state.stream_state import Warehouse, catalog_of
from ingest.state.table_registry import TableRegistry
from storage.clock import Clock, SystemClock
from storage.errors import CorruptDataError, LakewardError, NotFoundError
from storage.format.metadata.schema import TableSchema

_REQUEST_TIMEOUT_S = 15.0
_TAIL_BYTES = 256 << 10
Configs = Callable[[KafkaSourceSettings, Sequence[str]], Mapping[str, str]]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TopicSample:
    """One topic.

    Attributes:
        name: of the topic.
        partitions: how many it has (1 for files).
        records: between its ends; an estimate for files. Offsets that hold no record count too.
        bytes: of keys and values, estimated by the sample; size of the files for files.
        cleanup_policy: as the broker reports it; empty for files, or where access to it is denied.
        batches: the sample.
    """

    name: str
    partitions: int
    records: int
    bytes: int
    cleanup_policy: str
    batches: tuple[RawBatch, ...]

    @property
    def sampled(self) -> int:
        """Records in the sample."""
        return sum(len(batch) for batch in self.batches)


def topic_samples(
    settings: SourceSettings, records: int, configs: Configs | None = None
) -> list[TopicSample]:
    """Sample every topic that the settings select.

    Args:
        records: most records to read of one topic.
        configs: returns `cleanup.policy` by topic; by default from the brokers.

    Returns:
        In order of name.

    Raises:
        RetryableError: the source did not answer.
        InvalidRequestError: access denied.
        NotFoundError: the directory does not exist.
    """
    if isinstance(settings, FileSourceSettings):
        if not Path(settings.path).is_dir():
            raise NotFoundError(
                "the source directory does not exist", hint="set `source.path`", path=settings.path
            )
        listing = list_files(settings)
        return [_of_files(settings, topic, files, records) for topic, files in listing.items()]
    return _of_kafka(settings, records, configs or _policies)


# --- Kafka


def _of_kafka(settings: KafkaSourceSettings, records: int, configs: Configs) -> list[TopicSample]:
    source = KafkaSource(settings)
    try:
        marks = source.watermarks()
    finally:
        source.close()
    places: dict[str, dict[int, tuple[int, int]]] = {}
    for (topic, partition), ends in sorted(marks.items()):
        places.setdefault(topic, {})[int(partition)] = ends
    policies = configs(settings, list(places))
    samples = []
    for topic, partitions in places.items():
        batches = tuple(_read(settings, _kafka_ranges(topic, partitions, records)))
        count = sum(high - low for low, high in partitions.values())
        samples.append(
            TopicSample(
                name=topic,
                partitions=len(partitions),
                records=count,
                bytes=int(count * _record_bytes(batches)),
                cleanup_policy=policies.get(topic, ""),
                batches=batches,
            )
        )
    return samples


def _kafka_ranges(
    topic: str, partitions: Mapping[int, tuple[int, int]], records: int
) -> Iterator[SourceRange]:
    """The beginning and the end of every partition that has records, in equal shares."""
    filled = {number: ends for number, ends in partitions.items() if ends[1] > ends[0]}
    share = max(2, records // max(1, len(filled)))
    for number, (low, high) in sorted(filled.items()):
        if high - low <= share:
            yield SourceRange(topic, number, low, high)
            continue
        yield SourceRange(topic, number, low, low + (share + 1) // 2)
        yield SourceRange(topic, number, high - share // 2, high)


def _policies(settings: KafkaSourceSettings, topics: Sequence[str]) -> Mapping[str, str]:
    """`cleanup.policy` by topic; topics whose configuration may not be read are left out."""
    if not topics:
        return {}
    client = AdminClient({**admin_config(settings), "log_level": 0})
    resources = [ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in topics]
    try:
        futures = client.describe_configs(resources, request_timeout=_REQUEST_TIMEOUT_S)
    except KafkaException as error:
        raise broker_error(error) from error
    policies = {}
    for resource, future in futures.items():
        try:
            entry = future.result().get("cleanup.policy")
        except KafkaException:  # describing configurations needs a separate ACL
            continue
        policies[resource.name] = "" if entry is None else str(entry.value)
    return policies


# --- files


def _of_files(
    settings: FileSourceSettings, topic: str, files: Sequence[ListedFile], records: int
) -> TopicSample:
    size = sum(file.size for file in files)
    places = range(len(files))
    from_begin = (_file_range(settings, topic, files, at, 0) for at in places)
    first = _first(_read(settings, itertools.chain.from_iterable(from_begin)), records)
    mean = _record_bytes(first)
    whole = sum(map(len, first)) < records
    if not whole and records > 1:
        first = _first(iter(first), (records + 1) // 2)
        last_offset = first[-1].offsets[-1] if first else -1
        window = max(_TAIL_BYTES, int(2 * mean * records))
        tail: list[RawBatch] = []
        for at in reversed(places):
            batches = _read(settings, _file_range(settings, topic, files, at, window))
            tail = [*(_above(batch, last_offset) for batch in batches), *tail]
            if sum(map(len, tail)) >= records // 2 or at == last_offset >> POSITION_BITS:
                break
        first += _last(tail, records // 2)
    unpacked = size * _unpacked_ratio(settings, files)
    lines = sum(map(len, first)) if whole else int(unpacked / mean) if mean else 0
    return TopicSample(
        name=topic,
        partitions=1,
        records=lines,
        bytes=size,
        cleanup_policy="",
        batches=tuple(batch for batch in first if len(batch)),
    )


def _unpacked_ratio(settings: FileSourceSettings, files: Sequence[ListedFile]) -> float:
    """Ratio of the size of lines to that of files, by the first file that is compressed."""
    packed = [file for file in files if file.packed and file.size]
    if not packed:
        return 1.0
    try:
        ratio = unpacked_size(Path(settings.path, packed[0].name)) / packed[0].size
    except CorruptDataError:  # still being written
        return 1.0
    share = sum(file.size for file in packed) / sum(file.size for file in files)
    return share * ratio + 1 - share


def _file_range(
    settings: FileSourceSettings, topic: str, files: Sequence[ListedFile], index: int, window: int
) -> Iterator[SourceRange]:
    """A file, or with a window the lines in its last bytes; none of a packed file."""
    file = files[index]
    path = Path(settings.path, file.name)
    base = index << POSITION_BITS
    if file.packed:
        if not window:
            yield SourceRange(topic, 0, base, base | ((1 << POSITION_BITS) - 1), (file.name,))
        return
    end = last_complete_end(path, 0, file.size)
    start = cut_after(path, end - window, end) if 0 < window < end else 0
    if end > start:
        yield SourceRange(topic, 0, base | start, base | end, (file.name,))


# --- both


def _read(settings: SourceSettings, ranges: Iterator[SourceRange]) -> Iterator[RawBatch]:
    lenient = dataclasses.replace(settings, fail_on_data_loss=False)
    for _, batches in open_ranges(ranges, lenient):
        yield from filter(len, batches)


def _record_bytes(batches: Sequence[RawBatch]) -> float:
    """Mean size of key and value [bytes]; 0 without records."""
    count = sum(map(len, batches))
    sizes = sum(
        sum(map(len, filter(None, batch.keys))) + sum(map(len, filter(None, batch.values)))
        for batch in batches
    )
    return sizes / count if count else 0.0


def _first(batches: Iterator[RawBatch], records: int) -> list[RawBatch]:
    parts: list[RawBatch] = []
    for batch in batches:
        part = _part(batch, 0, records)
        parts.append(part)
        records -= len(part)
        if records <= 0:
            break
    return parts


def _last(batches: Sequence[RawBatch], records: int) -> list[RawBatch]:
    parts: list[RawBatch] = []
    for batch in reversed(batches):
        if records <= 0:
            break
        parts.insert(0, _part(batch, max(0, len(batch) - records), len(batch)))
        records -= len(parts[0])
    return parts


def _above(batch: RawBatch, offset: int) -> RawBatch:
    begin = sum(1 for position in batch.offsets if position <= offset)
    return _part(batch, begin, len(batch))


def _part(batch: RawBatch, begin: int, end: int) -> RawBatch:
    """Records of a batch by position."""
    if begin == 0 and end >= len(batch):
        return batch
    chosen = range(begin, min(end, len(batch)))
    extras = {new: _Extras(batch, old) for new, old in enumerate(chosen)}
    return RawBatch(
        batch.topic,
        batch.partition,
        batch.offsets[begin:end],
        batch.keys[begin:end],
        batch.values[begin:end],
        extras=extras,
    )


@dataclasses.dataclass(frozen=True, slots=True)
class _Extras:
    """Headers and timestamp of a record of another batch."""

    batch: RawBatch
    at: int

    def headers(self) -> Sequence[tuple[str, bytes]]:
        return self.batch.headers(self.at)

    def timestamp(self) -> tuple[int, int]:
        return self.batch.timestamp(self.at)


# Runs sampled records through the decoder and the schema decisions, in a scratch warehouse.
#
# The driver's own registry works on a temporary directory that holds the existing tables with their
# newest schema and without rows. So the result is what the stream would do, decision by decision,
# and the real warehouse is only read.


_MOST_ROUNDS = 8


DecodedBatch = tuple[RawBatch, DecodeResult]
"""A raw batch, and what was decoded from it."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """What the stream would do with the sample.

    Attributes:
        sources: the topics in which each source table occurs.
        destinations: of each source table; None = no rule takes it.
        schemas: of every target, as it would be; without those that cannot be made.
        stored_schemas: of the targets that exist, as they are.
        targets: as rows are decoded for them.
        verdicts: (table, change) of all that would be changed, created or refused.
        problems: table to why it would not be written.
        decoded: of every raw batch, with the schemas as they would be.
        stop: why the stream would stop; "" = it does not.
        name_conflicts: why it would not start: foreign tables with the names of Lakeward's own.
        case_matches: (table, member of events, column) where the two are spelled differently.
    """

    sources: Mapping[SourceTable, frozenset[str]]
    destinations: Mapping[SourceTable, Destination | None]
    schemas: Mapping[str, TableSchema]
    stored_schemas: Mapping[str, TableSchema]
    targets: Mapping[str, Target]
    verdicts: Sequence[tuple[str, Verdict]]
    problems: Mapping[str, str]
    decoded: Sequence[DecodedBatch]
    stop: str = ""
    name_conflicts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    case_matches: frozenset[tuple[str, str, str]] = frozenset()


def rehearse(
    settings: Settings, topics: Sequence[TopicSample], clock: Clock | None = None
) -> Rehearsal:
    """Run the sample.

    Raises:
        RetryableError: the schema registry, or the warehouse, did not answer.
    """
    with tempfile.TemporaryDirectory(prefix="lakeward-plan-") as scratch:
        return _Stage(settings, f"{scratch}/lake", clock or SystemClock()).play(topics)


class _Stage:
    """The scratch warehouse and the findings so far."""

    def __init__(self, settings: Settings, scratch: str, clock: Clock) -> None:
        sink = dataclasses.replace(settings.sink, warehouse=scratch, options={})
        self._settings = dataclasses.replace(settings, sink=sink)
        self._real = catalog_of(Warehouse.of(settings.sink))
        self._scratch = catalog_of(Warehouse.of(sink))
        self._clock = clock
        self._decoding = Decoding(self._settings)
        self._book = TableRegistry(self._settings, clock)
        self._schemas_before: dict[str, TableSchema] = {}
        self._checked_tables: set[str] = set()
        self._problems: dict[str, str] = {}

    def play(self, topics: Sequence[TopicSample]) -> Rehearsal:
        batches = [batch for topic in topics for batch in topic.batches]
        self._book.load(create=False)
        verdicts: list[tuple[str, Verdict]] = []
        frozen: dict[str, str] = {}
        stop = ""
        decoded: Sequence[DecodedBatch] = ()
        sources: dict[SourceTable, set[str]] = {}
        for number in range(_MOST_ROUNDS):
            decoded, deltas, ddl = self._decode(batches, number, frozen)
            for source, names in self._decoding.sources.items():
                sources.setdefault(source, set()).update(names)
            if self._fetch(sources):  # existing tables: decode again with their schemas
                self._book.require(self._schemas_before)
                continue
            if not deltas or stop:
                break
            try:
                applied = self._book.schemas.apply(deltas, now_ms=self._clock.now_ms(), ddl=ddl)
            except SchemaStopError as error:
                stop = f"{error.message}: {error.context.get('change', '')}"
                frozen |= {delta.target: stop for delta in deltas}
                continue
            verdicts += applied.verdicts
            frozen |= applied.refused
            for name, why in self._book.take_to_park().items():
                self._problems.setdefault(name, why)
        routing = routing_of(self._settings)
        destinations = {source: routing.destination(source) for source in sources}
        return Rehearsal(
            sources={source: frozenset(names) for source, names in sources.items()},
            destinations=destinations,
            schemas=self._schemas(destinations),
            stored_schemas=self._schemas_before,
            targets=self._decoding.targets,
            verdicts=verdicts,
            problems=self._problems,
            decoded=decoded,
            stop=stop,
            name_conflicts=self._foreign(),
            case_matches=frozenset[tuple[str, str, str]]().union(
                *(result.case_matches for _, result in decoded)
            ),
        )

    def _decode(
        self, batches: Sequence[RawBatch], number: int, frozen: Mapping[str, str]
    ) -> tuple[list[DecodedBatch], list[SchemaDelta], list[TableDdl]]:
        plan = BatchPlan(
            batch_id=0,
            identifier=1,
            run=number,
            time_ms=self._clock.now_ms(),
            tables=self._book.schema_ids(),
            frozen=dict(frozen),
            answers=self._book.schemas.current_answers(),
        )
        self._decoding.use(plan)
        decoded: list[DecodedBatch] = []
        deltas: list[SchemaDelta] = []
        ddl: list[TableDdl] = []
        for raw in batches:
            result = self._decoding.decode(raw)
            deltas += result.deltas
            ddl += self._decoding.ddl(raw)
            decoded.append((raw, result))
        return decoded, deltas, ddl

    def _fetch(self, sources: Mapping[SourceTable, set[str]]) -> bool:
        """Copy existing tables into the scratch warehouse; whether there were any."""
        new = False
        for source in sources:
            place = routing_of(self._settings).writable_destination(source)
            if place is None or place.table in self._checked_tables:
                continue
            name = place.table
            self._checked_tables.add(name)
            try:
                if not self._real.exists(name):
                    continue
                schema = self._real.table(name).schema
                self._scratch.create_table(name, dataclasses.replace(schema, id=0))
            except LakewardError as error:
                self._problems[name] = str(error)
                continue
            self._schemas_before[name] = schema
            new = True
        return new

    def _foreign(self) -> dict[str, str]:
        """Tables of others that have the names of Lakeward's own, and what is wrong with them."""
        now_ms, faults = self._clock.now_ms(), dict[str, str]()
        for name, schema in (
            (self._book.quarantine, quarantine_schema(now_ms)),
            (self._book.history, history_schema(now_ms)),
        ):
            try:
                if self._real.exists(name):
                    require_own_table(name, self._real.table(name).schema, schema)
            except LakewardError as error:
                faults[name] = str(error)
        return faults

    def _schemas(self, places: Mapping[SourceTable, Destination | None]) -> dict[str, TableSchema]:
        written = [place for place in places.values() if place is not None and not place.refusal]
        names = {place.table for place in written}
        schemas = {}
        for name in sorted(names):
            try:
                if self._scratch.exists(name):
                    schemas[name] = self._scratch.table(name).schema
            except LakewardError as error:
                self._problems.setdefault(name, str(error))
        return schemas


# Types of the source's columns in sampled records, as the connector names them.
#
# For reports, independent of the decoder: of each source table one record of every distinct schema
# block is read. Formats without schema blocks carry no types, except Canal's `mysqlType`; then the
# JSON type of the values is reported.


_MOST_RECORDS = 2_000
"""Records of one topic that are examined."""

_KINDS: Mapping[type, str] = {
    bool: "JSON true or false",
    int: "JSON number",
    float: "JSON number",
    str: "JSON text",
    list: "JSON array",
    dict: "JSON object",
}
_SHORT = {
    "org.apache.kafka.connect.data.": "connect.",
    "io.debezium.time.": "",
    "io.debezium.data.": "",
    "io.debezium.data.geometry.": "",
}


@dataclasses.dataclass(slots=True)
class Observed:
    """Statistics of the events of one source table.

    Attributes:
        columns: type of each column as the source names it, or the JSON type of its values.
        typed: whether events carry types.
        connector: `postgresql`, `mysql`, …; empty when events do not say.
        records: row events examined.
        keyless: those without a key.
        changes: updates and deletes.
        no_before: updates and deletes without a `before`.
        unavailable: those with a value that was not sent because it did not change.
    """

    columns: dict[str, str] = dataclasses.field(default_factory=dict)
    typed: bool = False
    connector: str = ""
    records: int = 0
    keyless: int = 0
    changes: int = 0
    no_before: int = 0
    unavailable: int = 0


def observe(
    topics: Sequence[TopicSample], value: JsonValue, placeholder: str
) -> dict[tuple[str, str, str], Observed]:
    """Read the columns of the sample.

    Args:
        topics: the sample.
        value: reads a record's value as a JSON message.
        placeholder: stands for a value that was not sent.

    Returns:
        By (database, schema, table); empty texts where events do not carry them, and by the topic's
        name as table where they carry none.
    """
    observed: dict[tuple[str, str, str], Observed] = {}
    forms = Placeholder(placeholder).needles
    for topic in topics:
        for raw, at in _sampled_records(topic):
            message = _parsed(value(raw, at))
            if message is not None:
                _observe(observed, raw, at, message, forms)
    return observed


def _sampled_records(topic: TopicSample) -> Iterator[tuple[RawBatch, int]]:
    step = max(1, topic.sampled // _MOST_RECORDS)
    for raw in topic.batches:
        for at in range(0, len(raw), step):
            yield raw, at


def _parsed(data: bytes | None) -> dict[str, Any] | None:
    if data is None:
        return None
    try:
        message = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
    return message if isinstance(message, dict) else None


def _observe(
    observations: dict[tuple[str, str, str], Observed],
    raw: RawBatch,
    at: int,
    message: Mapping[str, Any],
    forms: tuple[bytes, ...],
) -> None:
    block = message.get("schema") if "payload" in message else None
    event = message.get("payload", message)
    if not isinstance(event, dict):
        return
    origin = event.get("source")
    origin = origin if isinstance(origin, dict) else {}
    place = (
        str(origin.get("db") or event.get("database") or ""),
        str(origin.get("schema") or ""),
        str(origin.get("table") or event.get("table") or raw.topic),
    )
    operation = event.get("op")
    enveloped = isinstance(operation, str) and bool(origin)
    if enveloped and operation not in ("c", "r", "u", "d"):
        return
    stats = observations.setdefault(place, Observed())
    stats.records += 1
    stats.keyless += raw.keys[at] is None
    stats.connector = str(origin.get("connector") or stats.connector)
    if enveloped and operation in ("u", "d"):
        stats.changes += 1
        stats.no_before += event.get("before") is None
    data = raw.values[at] or b""
    stats.unavailable += any(form in data for form in forms)
    if isinstance(block, dict):
        stats.typed = True
        stats.columns.update(_block_columns(block, enveloped=enveloped))
    elif isinstance(event.get("mysqlType"), dict):
        stats.typed = True
        stats.columns.update({str(k): str(v) for k, v in event["mysqlType"].items()})
    elif enveloped and isinstance(event.get("after"), dict):
        for name, value in event["after"].items():
            if value is not None:
                stats.columns.setdefault(name, _KINDS.get(type(value), "JSON"))


def _block_columns(block: Mapping[str, Any], *, enveloped: bool) -> Iterator[tuple[str, str]]:
    fields = block.get("fields")
    if enveloped:
        rows = [f for f in _maps(fields) if f.get("field") == "after"]
        fields = rows[0].get("fields") if rows else None
    for field in _maps(fields):
        if isinstance(field.get("field"), str):
            yield field["field"], _short_name(field)


def _maps(fields: object) -> list[Mapping[str, Any]]:
    return [f for f in fields if isinstance(f, dict)] if isinstance(fields, list) else []


def _short_name(field: Mapping[str, Any]) -> str:
    """A short name: the database's own where the connector sends it, else the semantic one."""
    parameters = field.get("parameters")
    parameters = parameters if isinstance(parameters, dict) else {}
    native_type = parameters.get("__debezium.source.column.type")
    if native_type:
        length = parameters.get("__debezium.source.column.length")
        scale = parameters.get("__debezium.source.column.scale")
        sizes = ", ".join(str(size) for size in (length, scale) if size is not None)
        return f"{native_type}({sizes})" if sizes else str(native_type)
    literal = str(field.get("type", ""))
    if literal == "array" and isinstance(field.get("items"), dict):
        return f"array<{_short_name(field['items'])}>"
    name = field.get("name")
    if not name:
        return literal
    short = str(name)
    for prefix in sorted(_SHORT, key=len, reverse=True):
        if short.startswith(prefix):
            short = _SHORT[prefix] + short[len(prefix) :]
            break
    precision, scale = parameters.get("connect.decimal.precision"), parameters.get("scale")
    if scale is not None:
        return f"{short}({precision}, {scale})" if precision else f"{short}(scale {scale})"
    return f"{short} ({literal})"
