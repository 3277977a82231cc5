# SPDX-License-Identifier: Apache-2.0
"""Highest positions of a table as they travel: in plans, reports and snapshots.

A snapshot of the stream in a table that is in the order of the source has the property
`lakeward.positions.<stream>`: JSON `{server: {topic: {partition: [...]}}}`, cumulative over the
source partitions that feed the table (`track.stored` says what the list holds).
"""

from collections.abc import Mapping
from typing import Any

import orjson

from storage.errors import CorruptDataError

__all__ = [
    "POSITIONS_PROPERTY",
    "StoredPositions",
    "merged_positions",
    "parsed",
    "positions_property",
]

POSITIONS_PROPERTY = "lakeward.positions."

StoredPositions = Mapping[str, Mapping[str, Mapping[str, list[Any]]]]
"""Highest positions of one table as JSON values, by server, topic and partition."""


def merged_positions(known: StoredPositions, newer: StoredPositions) -> StoredPositions:
    """The newer of each source partition."""
    merged: dict[str, dict[str, dict[str, list[Any]]]] = {
        server: {topic: dict(parts) for topic, parts in topics.items()}
        for server, topics in known.items()
    }
    for server, topics in newer.items():
        for topic, parts in topics.items():
            merged.setdefault(server, {}).setdefault(topic, {}).update(parts)
    return merged


def positions_property(
    stream: str, known: StoredPositions, newer: StoredPositions
) -> dict[str, str]:
    """The property of a commit; none for tables in the order of arrival.

    Args:
        stream: the stream's name.
        known: the table's positions before the batch.
        newer: those after the batch, of the source partitions in it.
    """
    merged = merged_positions(known, newer)
    if not merged:
        return {}
    text = orjson.dumps(merged, option=orjson.OPT_SORT_KEYS).decode()
    return {POSITIONS_PROPERTY + stream: text}


def parsed(text: str | None, snapshot_id: int) -> StoredPositions:
    """Positions of a property.

    Raises:
        CorruptDataError: it is none.
    """
    if text is None:
        return {}
    try:
        raw = orjson.loads(text)
        return {s: {t: dict(p) for t, p in topics.items()} for s, topics in raw.items()}
    except (ValueError, AttributeError, TypeError) as error:
        raise CorruptDataError(
            "a snapshot's source positions cannot be read", snapshot=snapshot_id, value=text
        ) from error
