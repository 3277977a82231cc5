# SPDX-License-Identifier: Apache-2.0
"""Which topic the stream's offsets are of: a name can be given to another one.

A topic that is deleted and created anew starts again at offset 0. While it is shorter than what
was read of the old one, its end tells; once it is longer, nothing but the topic's id does
(KIP-516), and its first records would be passed over in silence. `<checkpoint>/topics.json` keeps
per topic

* `id`: of the topic that the offsets are of;
* `left`, only while the stream goes over to a new one: the offsets at which the old one was left.
  Offsets that still equal these are of the old one. So which topic an offset is of follows from the
  offset, and a crash between planning and Spark's log needs no further care.

Brokers before 2.8 have no ids: nothing is kept then.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ingest.source.ranges import OffsetMap
from storage.errors import CorruptDataError, DataLossError
from storage.io.local import LocalFileIO

__all__ = ["TopicIdentities"]

_FILE_NAME = "topics.json"


class TopicIdentities:
    """See the module. One writer: the planning side of the stream.

    Args:
        checkpoint: the stream's directory.
    """

    def __init__(self, checkpoint: Path) -> None:
        self._path = checkpoint / _FILE_NAME
        self._known: dict[str, dict[str, Any]] | None = None

    def renewed(self, start: OffsetMap, ids: Mapping[str, str], *, allowed: bool) -> frozenset[str]:
        """Topics whose offsets are of an older topic of that name; notes topics that are new.

        Args:
            start: next offsets to read.
            ids: of the topics that the cluster has now.
            allowed: whether the stream may go over to another topic.

        Raises:
            DataLossError: it may not, and has to.
            CorruptDataError: the file cannot be read.
        """
        before = self._read()
        known = dict(before)
        found: set[str] = set()
        for topic, now in ids.items():
            offsets = start.get(topic)
            entry = known.get(topic)
            if offsets is None or entry is None:
                known[topic] = {"id": now}
            elif entry["id"] != now:
                if not allowed:
                    raise self._made_anew(topic, entry["id"], now)
                known[topic] = {"id": now, "left": offsets}
                found.add(topic)
            elif "left" in entry:
                if entry["left"] == offsets:
                    found.add(topic)
                else:
                    known[topic] = {"id": now}
        if known != before:
            text = json.dumps(known, sort_keys=True).encode()
            LocalFileIO().overwrite_bytes(str(self._path), text)
            self._known = known
        return frozenset(found)

    def _read(self) -> dict[str, dict[str, Any]]:
        if self._known is None:
            self._known = self._parsed()
        return self._known

    def _parsed(self) -> dict[str, dict[str, Any]]:
        try:
            known = json.loads(self._path.read_bytes())
            return {topic: {**entry, "id": str(entry["id"])} for topic, entry in known.items()}
        except FileNotFoundError:
            return {}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptDataError(
                "which topics the offsets are of cannot be read",
                hint="restore the file, or remove it if no topic was created anew meanwhile",
                path=self._path,
            ) from error

    def _made_anew(self, topic: str, was: str, now: str) -> DataLossError:
        return DataLossError(
            "a topic was deleted and created anew",
            detail="its offsets are of other records now",
            hint="re-snapshot the tables of this topic, or set `source.fail.on.data.loss: false` "
            f"to read the new one from its beginning; if the records are the same, as after a move "
            f"to another cluster with all offsets, remove {self._path}",
            topic=topic,
            was=was,
            now=now,
        )
