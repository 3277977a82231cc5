# SPDX-License-Identifier: Apache-2.0
"""Loads and checks the configuration of a pipeline, for daemon, commands and tools.

`ingest.config` only reads settings. Checks that need expressions, masks, columns, event time,
positions or metrics are here; all mistakes are reported at once.
"""

import contextlib
import dataclasses
import functools
import os
import shutil
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ingest.config import loading
from ingest.config.choices import refuse_misspelt
from ingest.config.settings import MetricsSettings, Settings, SinkSettings, TableRule
from ingest.config.settings_sources import add_key
from ingest.config.source_settings import (
    FileSourceSettings,
    KafkaSourceSettings,
    SchemaRegistrySettings,
    SourceSettings,
    selects_topic,
)
from ingest.decode.columns import checked_metadata
from ingest.decode.registry import SchemaRegistry
from ingest.errors import AccessDeniedError, ExitCode, kind_of
from ingest.kubernetes.pods import default_parallelism
from ingest.observe.metrics.metric_table import METRICS
from ingest.schema.routing import check_routes, check_watermarks
from ingest.schema.schema_sync import fixed_buckets, moving_partitions
from ingest.source.file_lines import list_files
from ingest.source.records import SOURCE, unordered
from ingest.transform.functions.arithmetic import zone_named
from ingest.transform.rules import check_part, check_rule, moved_by, parse_mask, transform_rule
from storage.clock import IdSource, RandomIds
from storage.errors import (
    InvalidOptionError,
    InvalidRequestError,
    LakewardError,
    NotFoundError,
)
from storage.io.resolve import is_local, resolve_file_io
from storage.options.options import TableOptions, option_value, require_writable

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

_ORDERED_FORMATS = ("debezium-json", "debezium-avro", "debezium-flat")
_ORDERING = "source.ordering"

_OWN_LABELS = frozenset(name for row in METRICS for name in row.labels)
_TAKEN_LABELS = _OWN_LABELS | {"job", "instance", "le", "quantile", "generation"}


def load_settings(
    paths: Path | str | Sequence[Path | str],
    overrides: Mapping[str, Any] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
) -> Settings:
    """Settings from one or more YAML files (`-` is standard input).

    Args:
        paths: files; later ones override earlier ones.
        overrides: dotted keys from flags; highest precedence.
        environ: environment; default: that of the process.

    Raises:
        NotFoundError: a file does not exist.
        InvalidOptionError: a key is unknown, or a value malformed, missing or contradictory.
        UnsupportedFeatureError: a key is not supported yet.
    """
    return resolve(paths, overrides, environ=environ).settings


def check_labels(settings: Settings) -> None:
    """Refuse labels that metrics already have.

    Raises:
        InvalidOptionError: names the label.
    """
    for name in settings.metrics.labels:
        if name in _TAKEN_LABELS:
            raise InvalidOptionError(
                "metrics already have a label of this name",
                hint="choose another name",
                key=f"metrics.labels.{name}",
            )


def check_ordering(settings: Settings) -> None:
    """Refuse tables whose rows cannot be ordered.

    Raises:
        InvalidOptionError: names the contradictory key.
    """
    if settings.events.ordering != SOURCE:
        return
    if settings.format not in _ORDERED_FORMATS:
        raise InvalidOptionError(
            f"records in format {settings.format} carry no source position",
            hint="set it to `kafka`, or use debezium-json, debezium-avro or debezium-flat",
            key=_ORDERING,
            value=SOURCE,
        )
    for key, properties in settings.property_sets():
        reason = unordered(properties)
        if reason:
            raise InvalidOptionError(
                f"a table cannot be ordered by source position: {reason}",
                hint=f"change `{key}`, or set `{_ORDERING}: kafka`",
                key=_ORDERING,
                value=SOURCE,
            )


def check_transforms(settings: Settings) -> None:
    """Check expressions, masks, metadata columns and partitions.

    Raises:
        InvalidOptionError: one is invalid; names the key of the setting.
    """
    _at("sink.time.zone", zone_named, settings.sink.time_zone)
    _at("sink.metadata.columns", checked_metadata, settings.sink.metadata_columns)
    for position, rule in enumerate(settings.tables):
        _check(settings, rule, f"tables[{position}]")


def transforms_found(settings: Settings) -> str:
    """A summary of the transforms and their requirements, for people."""
    rules = [(rule.match, transform_rule(settings, rule.match)) for rule in settings.tables]
    notes = [f"of {match}" for match, rule in rules if not rule.empty]
    for match, rule in rules:
        notes += [
            f"`{name}` is in the key of {match} and comes from {', '.join(inputs)}: updates and "
            "deletes must bring the old value (REPLICA IDENTITY FULL), or go to quarantine"
            for name, inputs in moved_by(rule, settings.primary_key(match)).items()
        ]
    return "; ".join(notes)


def _check(settings: Settings, rule: TableRule, where: str) -> None:
    if rule.filter is not None:
        _at(f"{where}.filter", check_part, "filter", rule.filter)
    for number, text in enumerate(rule.computed or ()):
        _at(f"{where}.computed[{number}]", check_part, "computed", text)
    for number, text in enumerate(rule.partition_by or ()):
        _at(f"{where}.partition.by[{number}]", check_part, "partition.by", text)
    for column, mask in (rule.mask or {}).items():
        _at(f"{where}.mask.{column}", check_part, "mask", mask)
    # including other rules for the same tables
    whole = transform_rule(settings, rule.match)
    _at(where, check_rule, whole)
    key = settings.primary_key(rule.match)
    computed = {name for name, _ in whole.assignments}
    for name in key:
        if name in whole.exclude and name not in computed:
            raise InvalidOptionError(
                "a key column cannot be excluded", key=f"{where}.columns.exclude", column=name
            )
        if name in whole.mask and not parse_mask(whole.mask[name]).keeps_apart:
            raise InvalidOptionError(
                "a mask would map different keys to one",
                hint="use sha256, or another primary key",
                key=f"{where}.mask.{name}",
            )
    _check_partitions(settings, rule, where)


def _check_partitions(settings: Settings, rule: TableRule, where: str) -> None:
    """Keys that move between partitions need an index, which fixed buckets lack."""
    whole, key = transform_rule(settings, rule.match), settings.primary_key(rule.match)
    if settings.appends and not key:
        return
    moving = moving_partitions(whole, key)
    if not key:  # the records' keys may have a column of the source, never a computed one
        moving = tuple(name for name, _ in whole.assignments if name in whole.partition_columns)
    properties = settings.table_properties(rule.match)
    if moving and option_value({"bucket": "1", **properties}, "bucket") != -1:
        _at(f"{where}.partition.by", _refuse, moving, properties.get("bucket", ""))
    if moving and "sequence.field" in properties:
        raise InvalidOptionError(
            "sequence.field cannot be combined with keys that move between partitions",
            hint=f"add {', '.join(moving)} to `primary.key`, or remove sequence.field",
            key=f"{where}.partition.by",
        )


def _refuse(moving: tuple[str, ...], bucket: str) -> None:
    raise fixed_buckets(moving, bucket)


def _at(key: str, check: Callable[..., object], *arguments: object) -> None:
    try:
        check(*arguments)
    except InvalidRequestError as error:
        raise InvalidOptionError(
            error.message,
            detail=error.detail,
            hint=error.hint or "docs/reference/transforms.md has what can be written there",
            key=key,
            **error.context,
        ) from error


_CHECKS = (check_routes, check_transforms, check_ordering, check_watermarks, check_labels)

resolve = functools.partial(loading.resolve, parallelism=default_parallelism, checks=_CHECKS)
"""`ingest.config.loading.resolve` with these checks."""


# The checks of `lakeward validate`: can this pipeline start here and now?
#
# `offline` checks the settings alone; `online` contacts the source, tests the directories and finds
# Java. Both only report; whatever they create they remove. The Kafka client is imported when a
# broker is contacted.


_BROKER_TIMEOUT_S = 10.0


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of one check.

    Attributes:
        name: what was checked.
        ok: whether the check passed.
        finding: the result, or the problem and what to do.
        exit_code: of `validate` if this is the first failure.
        key: of the invalid setting; empty = the finding names it.
    """

    name: str
    ok: bool
    finding: str
    exit_code: ExitCode = ExitCode.CONFIG
    key: str = ""


def offline(settings: Settings) -> list[Finding]:
    """Checks of the settings alone (malformed ones are refused earlier)."""
    findings = [_run("table options", lambda: _table_options(settings))]
    if any(not transform_rule(settings, rule.match).empty for rule in settings.tables):
        findings.append(_run("transforms", lambda: transforms_found(settings)))
    source = settings.source
    if isinstance(source, KafkaSourceSettings) and source.properties:
        findings.append(_run("client properties", lambda: _properties(source)))
    return findings


def online(settings: Settings, ids: IdSource | None = None) -> list[Finding]:
    """Checks of this machine and of the source; takes up to ten seconds if a broker is down."""
    ids = ids or RandomIds()
    checkpoint = Path(settings.pipeline.checkpoint)
    findings = [
        _run("java", _java),
        _run("warehouse", lambda: _warehouse(settings.sink, ids)),
        _run("checkpoint", lambda: _writable(checkpoint, ids)),
        source(settings),
    ]
    if settings.avro is not None:
        findings.append(registry(settings.avro.registry))
    if settings.metrics.enabled and settings.metrics.port:
        findings.append(_run("metrics port", lambda: _port(settings.metrics)))
    return findings


def source(settings: Settings) -> Finding:
    """Whether the source answers."""
    return _run("source", lambda: _source(settings.source))


def registry(settings: SchemaRegistrySettings) -> Finding:
    """Whether the schema registry answers, accepts the credentials and is a registry."""
    finding = _run("schema registry", lambda: _registry(settings))
    return finding if finding.ok else dataclasses.replace(finding, key="source.schema.registry.url")


def _run(name: str, check: Callable[[], str]) -> Finding:
    try:
        return Finding(name, ok=True, finding=check())
    except LakewardError as error:
        text = f"{error.message}{f': {error.detail}' if error.detail else ''}"
        hint = f"; {error.hint}" if error.hint else ""
        facts = "".join(f" {key}={value}" for key, value in error.context.items())
        return Finding(
            name,
            ok=False,
            finding=text + facts + hint,
            exit_code=_code(error),
            key=str(error.context.get("key", "")),
        )
    except OSError as error:
        return Finding(name, ok=False, finding=str(error), exit_code=_code(error))


def _code(error: Exception) -> ExitCode:
    return kind_of(error).exit_code


def _table_options(settings: Settings) -> str:
    common = settings.sink.table_properties
    _refuse_unwritable("sink.table.properties", common)
    for number, rule in enumerate(settings.tables):
        if rule.table_properties:
            _refuse_unwritable(f"tables[{number}]", {**common, **rule.table_properties})
    rules = len(settings.tables)
    return f"new tables can be written ({rules} rule{'' if rules == 1 else 's'})"


def _refuse_unwritable(where: str, properties: Mapping[str, str]) -> None:
    """Refuse options that the stream cannot write, with the key that sets them."""
    options = TableOptions.from_strings(properties)
    with add_key(where, {"option": f"{where}.{{}}"}):
        for option in properties:
            refuse_misspelt(option)
        require_writable(options)


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if java is None:
        raise NotFoundError(
            "no Java runtime",
            hint="install a JRE 17 or newer and put `java` on the PATH, or set JAVA_HOME",
        )
    return java


def _warehouse(sink: SinkSettings, ids: IdSource) -> str:
    if is_local(sink.warehouse):
        return _writable(Path(sink.warehouse), ids)
    store, root = resolve_file_io(sink.warehouse, sink.options)
    probe = f"{root}/.lakeward-check-{ids.uuid()}"
    try:
        if not store.put_if_absent(probe, b"1") or store.put_if_absent(probe, b"2"):
            raise InvalidRequestError("the object store ignores conditional writes")
    finally:
        store.delete_many([probe])
    return f"{root} can be written, and conditional puts are honoured"


def _writable(directory: Path, ids: IdSource) -> str:
    """Test writing to the directory, or, if it does not exist, to its nearest parent."""
    existing = directory
    while not existing.exists():
        existing = existing.parent
    if not existing.is_dir():
        raise InvalidRequestError("not a directory", path=existing)
    probe = existing / f".lakeward-check-{ids.uuid()}"
    try:
        probe.write_bytes(b"")
    finally:
        with contextlib.suppress(OSError):
            probe.unlink(missing_ok=True)
    missing = "" if existing == directory else " (will be created)"
    return f"{directory} can be written{missing}"


def _port(metrics: MetricsSettings) -> str:
    address = (metrics.host, metrics.port)
    with socket.socket(socket.AF_INET6 if ":" in metrics.host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            raise InvalidRequestError(
                "the port cannot be opened",
                detail=error.strerror or str(error),
                hint="set `metrics.port`, or stop the process that has it",
                port=metrics.port,
            ) from error
    return f"{metrics.host}:{metrics.port} is free"


def _source(settings: SourceSettings) -> str:
    if isinstance(settings, FileSourceSettings):
        return _files(settings)
    return _kafka(settings)


def _files(settings: FileSourceSettings) -> str:
    if not Path(settings.path).is_dir():
        raise NotFoundError(
            "the source directory does not exist", hint="set `source.path`", path=settings.path
        )
    listing = list_files(settings)
    count = sum(len(files) for files in listing.values())
    return _topics_found(list(listing), f"{count} files")


def _properties(settings: KafkaSourceSettings) -> str:
    """Whether the client library knows the properties; files that they name may be elsewhere."""
    from confluent_kafka import Consumer, KafkaException

    from ingest.source.kafka_client import consumer_config, refused_properties

    try:
        Consumer({**consumer_config(settings), "log_level": 0}).close()
    except (KafkaException, ValueError, TypeError) as error:
        detail = error.args[0].str() if isinstance(error, KafkaException) else str(error)
        if not detail.startswith("Failed to create"):
            raise refused_properties(detail) from error
    return f"{len(settings.properties)} are known to the kafka client"


def _kafka(settings: KafkaSourceSettings) -> str:
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient

    from ingest.source.kafka_client import admin_config

    denied: list[KafkaError] = []

    def on_error(error: "KafkaError") -> None:
        """Refused credentials are reported only here; the request itself times out."""
        if error.code() in (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED):
            denied.append(error)

    # the client's own log lines would interrupt the report
    quiet = {"error_cb": on_error, "log_level": 0}
    try:
        client = AdminClient({**admin_config(settings), **quiet})
        metadata = client.list_topics(timeout=_BROKER_TIMEOUT_S)
    except (KafkaException, ValueError, TypeError) as error:
        raise _kafka_problem(denied[0] if denied else error, settings) from error
    partitions = {
        topic: len(entry.partitions)
        for topic, entry in metadata.topics.items()
        if selects_topic(settings, topic)
    }
    brokers = f"{len(metadata.brokers)} brokers, {sum(partitions.values())} partitions"
    return _topics_found(sorted(partitions), brokers)


def _kafka_problem(error: object, settings: KafkaSourceSettings) -> LakewardError:
    from confluent_kafka import KafkaError, KafkaException

    from ingest.source.kafka_client import broker_error, refused_properties

    servers = settings.bootstrap_servers
    if isinstance(error, KafkaException) and isinstance(error.args[0], KafkaError):
        error = error.args[0]
    if isinstance(error, KafkaError):
        cause = broker_error(error)
        if isinstance(cause, InvalidOptionError):
            return cause
        cause.context = {} if isinstance(cause, AccessDeniedError) else {"brokers": servers}
        cause.hint = cause.hint or "check `source.bootstrap.servers`, the listener and the network"
        return cause
    return refused_properties(str(error))


def _registry(settings: SchemaRegistrySettings) -> str:
    subjects = SchemaRegistry(dataclasses.replace(settings, retry_for_s=0)).subjects()
    return f"{', '.join(settings.urls)} answers, {subjects} subjects"


def _topics_found(topics: list[str], more: str) -> str:
    if not topics:
        return f"answers, but no topic matches yet ({more})"
    names = ", ".join(topics[:5]) + (f" and {len(topics) - 5} more" if len(topics) > 5 else "")
    return f"{len(topics)} topics: {names} ({more})"
