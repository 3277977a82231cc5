# SPDX-License-Identifier: Apache-2.0
"""librdkafka configuration, and which of its errors mean what to us.

Owns the client properties exact ranges rest on and the defaults chosen for throughput; the user's
`source.properties` come on top unchanged (SASL, SSL, tuning). Holds no connection.
"""

import logging
import re
import time

from confluent_kafka import KafkaError, KafkaException

from ingest.config.source_settings import KafkaSourceSettings
from ingest.config.suggestion import nearest
from storage.errors import (
    DataLossError,
    InvalidOptionError,
    InvalidRequestError,
    LakewardError,
    RetryableError,
)

_LOG = logging.getLogger("librdkafka")


_REPEAT_S = 60.0
_MOST_LINES = 1_000
_VARYING = re.compile(r"\(after \d+ms in state \w+.*\)")


class _ClientLog:
    """Takes the lines of librdkafka, which come when a client is polled; see `CLIENT_LOG`.

    It retries an unavailable broker twenty times a second and logs each attempt: the same line of
    a client is written once a minute.
    """

    def __init__(self) -> None:
        self._written_s: dict[tuple[str, str], float] = {}

    def log(self, level: int, form: str, facility: str, client: str, text: str) -> None:
        """As confluent_kafka calls it; what is an error for us, we say."""
        del form
        if not self._is_new(client, _VARYING.sub("", text), time.monotonic()):
            return
        _LOG.log(
            min(level, logging.WARNING),
            "%s",
            text,
            extra={"event": "librdkafka", "facility": facility, "client": client},
        )

    def _is_new(self, client: str, text: str, now_s: float) -> bool:
        written_s = self._written_s.get((client, text))
        if written_s is not None and now_s - written_s < _REPEAT_S:
            return False
        if len(self._written_s) >= _MOST_LINES:
            self._written_s.clear()
        self._written_s[client, text] = now_s
        return True


CLIENT_LOG = _ClientLog()
"""For the argument `logger` of clients: their lines go to our log, not past it."""

_FIXED: dict[str, str | bool] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    # the end of a range can be after its last record (transaction markers, compaction)
    "enable.partition.eof": True,
    # offsets out of range must be an error, never a silent jump
    "auto.offset.reset": "error",
}

_DEFAULTS: dict[str, str | int | bool] = {
    # librdkafka demands a name; no group is joined and nothing is committed under it
    "group.id": "lakeward",
    "client.id": "lakeward",
    "isolation.level": "read_committed",
    # One partition is read at a time, so one partition's fetch is the unit of transfer: 4 MiB is
    # about 10 ms of decoding. What is queued when a range ends is discarded, up to the size of the
    # queue and one fetch, so the queue is 4 MiB: with 16 MiB, reading ranges of 36 MB took a
    # quarter more CPU. A full queue is checked again after 1 ms; librdkafka's 1 s starves the
    # consumer (0.2 million messages of 650 bytes a second instead of 0.7).
    "max.partition.fetch.bytes": 4 << 20,
    "queued.max.messages.kbytes": 4 << 10,
    "fetch.queue.backoff.ms": 1,
    # How long a broker delays its answer at the end of the log, which ends most ranges; the next
    # range waits for that answer (4 partitions of 250 records: 158 ms with 50, 25 ms with 5).
    "fetch.wait.max.ms": 5,
    "fetch.error.backoff.ms": 100,
    "reconnect.backoff.max.ms": 2000,
    "socket.keepalive.enable": True,
}

# Properties an admin client warns about because only consumers have them.
_CONSUMER_ONLY = (
    "auto.commit.",
    "auto.offset.",
    "check.crcs",
    "enable.auto.",
    "enable.partition.eof",
    "fetch.",
    "group.",
    "heartbeat.",
    "isolation.level",
    "max.partition.",
    "max.poll.",
    "partition.assignment.",
    "queued.",
    "session.timeout",
)

_TRANSIENT = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._MSG_TIMED_OUT,
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._TRANSPORT,
        KafkaError._WAIT_CACHE,
        KafkaError._WAIT_COORD,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.NOT_COORDINATOR,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.REQUEST_TIMED_OUT,
        # what a broker says between the creation of a topic and the news reaching it
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
    }
)

_DENIED = frozenset(
    {
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError._AUTHENTICATION,
    }
)


def consumer_config(settings: KafkaSourceSettings) -> dict[str, str | int | bool]:
    """Configuration of a consumer that reads exact ranges and joins no group."""
    return {
        **_DEFAULTS,
        **settings.properties,
        **_FIXED,
        "bootstrap.servers": settings.bootstrap_servers,
    }


def admin_config(settings: KafkaSourceSettings) -> dict[str, str | int | bool]:
    """The same connection for an admin client."""
    config = consumer_config(settings)
    return {name: value for name, value in config.items() if not name.startswith(_CONSUMER_ONLY)}


def is_transient(error: KafkaError) -> bool:
    """Whether waiting can help: the client library or the next trigger tries again."""
    return error.code() in _TRANSIENT or bool(error.retriable())


_COMMON = (
    *("security.protocol", "sasl.mechanisms", "sasl.username", "sasl.password", "debug"),
    *("sasl.oauthbearer.config", "sasl.oauthbearer.method", "sasl.kerberos.keytab"),
    *("ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "ssl.key.password"),
    *("enable.ssl.certificate.verification", "ssl.endpoint.identification.algorithm"),
    *("fetch.min.bytes", "fetch.wait.max.ms", "fetch.message.max.bytes", "message.max.bytes"),
    *("client.id", "client.rack", "socket.timeout.ms", "broker.address.family"),
)


def refused_properties(detail: str) -> InvalidRequestError:
    """The error of a client that cannot be made, which waiting does not change.

    Args:
        detail: the client library's words, which name the property.
    """
    unknown = re.search(r'No such configuration property: "(.+)"', detail)
    return InvalidOptionError(
        "the kafka client refuses its settings",
        detail=detail,
        hint=(nearest(unknown.group(1), _COMMON) if unknown else "")
        or "its properties are those of librdkafka, which are not always those of Java clients",
        key=f"source.properties.{unknown.group(1)}" if unknown else "source.properties",
    )


def broker_error(
    error: KafkaError | KafkaException, *, topic: str = "", partition: int = -1
) -> LakewardError:
    """Our error for one of librdkafka's: what the caller can do next decides the class."""
    cause = error.args[0] if isinstance(error, KafkaException) else error
    if cause.code() == KafkaError._INVALID_ARG:
        return refused_properties(cause.str())
    target = f"{topic}-{partition}" if topic else "cluster"
    if cause.code() in _DENIED:
        return InvalidRequestError(
            "kafka refused access",
            detail=cause.str(),
            hint="check the credentials in `source.properties` and the ACLs of the topics",
            target=target,
        )
    return RetryableError("kafka did not answer", detail=cause.str(), target=target)


def data_loss(topic: str, partition: int, offset: int, low: int, high: int) -> DataLossError:
    """Offsets the stream still needs are not in the log.

    Args:
        topic: source topic.
        partition: partition number.
        offset: first offset that was needed.
        low: earliest offset there is.
        high: end of the log.
    """
    cause = (
        "retention or a deletion removed them"
        if offset < low
        else "the topic was deleted, truncated or re-created"
    )
    return DataLossError(
        "kafka no longer has offsets that this stream needs",
        detail=cause,
        hint="re-snapshot the tables of this topic, or set `source.fail.on.data.loss: false` to "
        "continue with the remaining records",
        topic=topic,
        partition=partition,
        wanted=offset,
        earliest=low,
        latest=high,
    )
