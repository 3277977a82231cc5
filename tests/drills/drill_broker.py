# SPDX-License-Identifier: Apache-2.0
"""A Kafka broker that can be taken away and brought back, with its data and at its address."""

import contextlib
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.e2e.kafka_broker import PROPERTIES, kafka_jars, run_tool
from tests.e2e.server_process import ServerProcess
from tests.free_ports import free_ports

Place = tuple[str, int]


class DrillBroker:
    """See the module.

    Args:
        root: an empty directory for its data and log.
    """

    def __init__(self, root: Path) -> None:
        port, controller = free_ports(2)
        self.address = f"127.0.0.1:{port}"
        properties = root / "server.properties"
        properties.write_text(
            PROPERTIES.format(port=port, controller=controller, logs=root / "logs")
        )
        java = ["java", "-Xmx512m", "-Xms128m", "-XX:+UseSerialGC", "-cp", f"{kafka_jars()}/*"]
        form = ["kafka.tools.StorageTool", "format", "-t", uuid.uuid4().hex[:22]]
        run_tool(
            [java[0], "-XX:TieredStopAtLevel=1", *java[1:], *form, "-c", str(properties)], root
        )
        self._process = ServerProcess([*java, "kafka.Kafka", str(properties)], root / "broker.log")

    def start(self) -> None:
        """Start it, for the first time or again; returns when it answers."""
        self._process.start(self._answers)

    def kill(self) -> None:
        """SIGKILL: what clients see is a closed port."""
        self._process.kill()

    def stop(self) -> None:
        """SIGTERM: an orderly end, as in a rolling restart."""
        self._process.stop()

    def admin(self) -> AdminClient:
        """A new client."""
        return AdminClient({"bootstrap.servers": self.address, "log_level": 0})

    def ends(self, topics: list[str]) -> dict[Place, int]:
        """The next offset to be written of every partition."""
        admin = self.admin()
        known = admin.list_topics(timeout=20).topics
        places = [
            TopicPartition(topic, number)
            for topic in topics
            if topic in known
            for number in known[topic].partitions
        ]
        answers = admin.list_offsets({place: OffsetSpec.latest() for place in places})
        return {
            (place.topic, place.partition): future.result(20).offset
            for place, future in answers.items()
        }

    def retention_takes(self, upto: dict[Place, int]) -> None:
        """Delete all records below the offsets, as retention does."""
        places = [TopicPartition(topic, number, end) for (topic, number), end in upto.items()]
        admin = self.admin()  # it must live as long as its futures
        for future in admin.delete_records(places).values():
            future.result(30)

    def _answers(self) -> bool:
        try:
            self.admin().list_topics(timeout=2)
        except KafkaException:
            return False
        return True


@contextlib.contextmanager
def drill_broker() -> Iterator[DrillBroker]:
    """A broker for all drills.

    Raises:
        PartUnavailableError: none can be had here.
    """
    with tempfile.TemporaryDirectory(prefix="lakeward-kafka-") as folder:
        broker = DrillBroker(Path(folder))
        broker.start()
        try:
            yield broker
        finally:
            broker.kill()
