# SPDX-License-Identifier: Apache-2.0
"""The checks of `lakeward validate`: can this pipeline start here and now?

`offline` checks the settings alone; `online` contacts the source, tests the directories and finds
Java. Both only report; whatever they create they remove. The Kafka client is imported when a broker
is contacted.
"""

import contextlib
import dataclasses
import os
import shutil
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ingest.config.locations import add_key
from ingest.config.registry_settings import SchemaRegistrySettings
from ingest.config.setting_values import MetricsSettings, SinkSettings
from ingest.config.settings import Settings
from ingest.config.source_settings import (
    FileSourceSettings,
    KafkaSourceSettings,
    SourceSettings,
    selects_topic,
)
from ingest.config.suggestion import refuse_misspelt
from ingest.daemon.configuration import transforms_found
from ingest.decode.registry.client import SchemaRegistry
from ingest.errors import AccessDeniedError, ExitCode, kind_of
from ingest.source.file_listing import list_files
from ingest.transform.rules import transform_rule
from storage.clock import IdSource, RandomIds
from storage.errors import (
    InvalidOptionError,
    InvalidRequestError,
    LakewardError,
    NotFoundError,
)
from storage.io.resolve import is_local, resolve_file_io
from storage.options.options import TableOptions, require_writable

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

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
        if isinstance(cause, InvalidRequestError):
            return AccessDeniedError(cause.message, detail=cause.detail, hint=cause.hint)
        cause.context = {"brokers": servers}
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
