# SPDX-License-Identifier: Apache-2.0
"""`make broker`: a Kafka broker on this machine, without Docker, for trying Lakeward.

It has the demo shop's topics with a snapshot and some changes; more changes follow every second,
until Ctrl-C. Nothing remains afterwards.
"""

import contextlib
import signal
import time

from tests.e2e.kafka_broker import jvm_broker
from tests.e2e.shop_stream import ShopStream

PORT = 9092
_CHANGES_PER_S = 20


def main() -> None:
    """Serve until interrupted."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    print("starting Kafka (the first time its jars are downloaded) …", flush=True)
    with contextlib.suppress(KeyboardInterrupt), jvm_broker(PORT):
        stream = ShopStream(f"127.0.0.1:{PORT}")
        stream.shop.at(int(time.time() * 1_000))
        stream.snapshot(2_000)
        print(
            f"topics {', '.join(stream.topics[:-1])} at 127.0.0.1:{PORT}; Ctrl-C ends it",
            flush=True,
        )
        while True:
            stream.shop.at(int(time.time() * 1_000))  # freshness is measured from these times
            stream.changes(_CHANGES_PER_S)
            time.sleep(1)


if __name__ == "__main__":
    main()
