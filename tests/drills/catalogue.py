# SPDX-License-Identifier: Apache-2.0
"""The drills: what is done to the daemon, and what metrics, readiness, log and alerts then say.

One row per drill. `Stage` checks every row against the running daemon, `page` makes
`deploy/DRILLS.md` of the rows.
"""

import dataclasses
from typing import Literal

__all__ = ["DRILLS", "Drill", "Shown"]

How = Literal["rises", "falls", "is set", "goes away"]


@dataclasses.dataclass(frozen=True)
class Shown:
    """What a metric does between fault and recovery.

    Attributes:
        metric: without prefix; of a histogram its `_count`.
        how: the sum of its series, against the value before the fault: `rises`, `falls`,
            `goes away` (no series), `is set` (is not 0 at some time).
        labels: of the series meant.
    """

    metric: str
    how: How
    labels: tuple[tuple[str, str], ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Drill:
    """One row.

    Attributes:
        name: of the test without `test_`.
        fault: what is done.
        outcome: what the daemon does, for people.
        shown: metrics.
        events: ids of log lines that must come.
        unready: part of a reason that `/readyz` gives meanwhile; "" = it stays ready, None = the
            process is gone or may be either.
        alerts: that fire when it lasts.
        exits: exit codes of the process on the way, if it ends by itself.
    """

    name: str
    fault: str
    outcome: str
    shown: tuple[Shown, ...]
    events: tuple[str, ...]
    unready: str | None
    alerts: tuple[str, ...]
    exits: tuple[int, ...] = ()


_SKIPPED = Shown("source_skipped_offsets_total", "rises")

_ROWS: tuple[Drill, ...] = (
    Drill(
        name="broker_restarts",
        fault="the only broker is stopped in an orderly way and started again",
        outcome="waits, tries again, goes on",
        shown=(Shown("source_errors_total", "rises"),),
        events=("lag_poll",),
        unready="kafka did not answer",
        alerts=(),
    ),
    Drill(
        name="broker_is_away_for_a_minute",
        fault="the only broker is killed in the middle of a batch and is away for 60 s",
        outcome="the batch waits; the process lives on; all of it is read when the broker is back",
        shown=(Shown("source_errors_total", "rises"),),
        events=("lag_poll",),
        unready="kafka did not answer",
        alerts=(),
    ),
    Drill(
        name="topic_is_created_anew",
        fault="a topic is deleted and created again, with fewer records than were read of it",
        outcome="stops with exit code 65, at every start, until a person allows to go on "
        "(`source.fail.on.data.loss: false`); then the new topic is read from its beginning",
        shown=(),
        events=("fatal",),
        unready=None,
        alerts=(),
        exits=(65, 65),
    ),
    Drill(
        name="topic_is_created_anew_and_grows_past_the_old_one",
        fault="a topic is deleted and created again while nobody reads, and has more records by "
        "the time of the next start",
        outcome="the same",
        shown=(),
        events=("fatal",),
        unready=None,
        alerts=(),
        exits=(65,),
    ),
    Drill(
        name="retention_passes_the_offsets",
        fault="the daemon is down, and retention removes records that it has not read",
        outcome="stops with exit code 65; allowed to go on it skips them and counts each; the "
        "tables are whole again when the source has sent its rows again",
        shown=(_SKIPPED,),
        events=("fatal",),
        unready=None,
        alerts=(),
        exits=(65,),
    ),
)

DRILLS = {row.name: row for row in _ROWS}
