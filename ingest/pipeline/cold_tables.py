# SPDX-License-Identifier: Apache-2.0
"""How long records of a topic may wait: `tables[].freshness`, `pipeline.trigger.idle.commit`.

Which topics feed a table is what the table's commits say. A topic of several tables waits as long
as the most urgent of them allows. Topics of which no table knows yet never wait; nor does any while
a table catches up after a resume.
"""

from collections.abc import Collection, Iterable, Mapping

from ingest.config.settings import Settings

__all__ = ["topic_waits"]


def topic_waits(
    settings: Settings, feeds: Mapping[str, Iterable[str]], own: Collection[str]
) -> dict[str, float]:
    """Seconds that records of a topic may wait [s]; topics that may not are not in it.

    Args:
        settings: of the pipeline.
        feeds: topics by table.
        own: tables of Lakeward's own, fed by topics of others.
    """
    found: dict[str, float] = {}
    for table, topics in feeds.items():
        if table in own:
            continue
        wait_s = settings.rule_value(table, lambda rule: rule.freshness_s)
        if wait_s is None:
            wait_s = settings.pipeline.idle_commit_s or 0.0
        for topic in topics:
            found[topic] = min(found.get(topic, wait_s), wait_s)
    shortest = settings.pipeline.trigger_interval_s
    return {topic: wait_s for topic, wait_s in found.items() if wait_s > shortest}
