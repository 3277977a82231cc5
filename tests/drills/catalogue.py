# SPDX-License-Identifier: Apache-2.0
"""The drills: what is done to the daemon, and what metrics, readiness, log and alerts then say.

One row per drill. `Stage` checks every row against the running daemon, `page` makes
`docs/operations/drills.md` of the rows.
"""

import dataclasses
from typing import Any, Literal

__all__ = ["DRILLS", "Drill", "Shown"]

How = Literal["rises", "falls", "is set"]


@dataclasses.dataclass(frozen=True)
class Shown:
    """What a metric does between fault and recovery.

    Attributes:
        metric: without prefix; of a histogram its `_count`.
        how: the sum of its series, against the value before the fault: `rises`, `falls`, `is set`
            (is not 0 at some time).
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
        dies: whether the process is gone while the fault lasts.
    """

    name: str
    fault: str
    outcome: str
    shown: tuple[Shown, ...]
    events: tuple[str, ...]
    unready: str | None
    alerts: tuple[str, ...]
    exits: tuple[int, ...] = ()
    dies: bool = False


_ENDS: dict[str, Any] = {
    "dies": True,
    "unready": None,
    "alerts": ("LakewardDown", "LakewardCrashLooping"),
}
"""The process is gone, and is started again and again."""

_WAITS: dict[str, Any] = {
    "shown": (
        Shown("outage", "is set"),
        Shown("batches_total", "rises", (("outcome", "failed"),)),
    ),
    "events": ("outage",),
}
"""Batches fail, and what they need is waited for."""

_NO_BROKER: dict[str, Any] = {
    "shown": (Shown("source_errors_total", "rises"),),
    "events": ("lag_poll",),
    "unready": "kafka did not answer",
}

_ROWS: tuple[Drill, ...] = (
    Drill(
        name="broker_restarts",
        fault="the only broker is shut down cleanly and restarted",
        outcome="retries until the broker is back, then continues",
        **_NO_BROKER,
        alerts=("LakewardSourcePollFailing",),
    ),
    Drill(
        name="broker_is_down_for_a_minute",
        fault="the only broker is killed in the middle of a batch and is down for 60 s",
        outcome="the batch is retried; the process keeps running; all records are read when the "
        "broker is back",
        **_NO_BROKER,
        alerts=("LakewardSourcePollFailing", "LakewardNoCommit"),
    ),
    Drill(
        name="topic_is_recreated",
        fault="a topic is deleted and created again, with fewer records than were read before",
        outcome="stops with exit code 65 until skipping is allowed "
        "(`source.fail.on.data.loss: false`); then the new topic is read from its beginning",
        shown=(),
        events=("fatal",),
        exits=(65,),
        **_ENDS,
    ),
    Drill(
        name="topic_is_recreated_and_grows_past_the_old_one",
        fault="a topic is deleted and created again while the daemon is down, and has more records "
        "by "
        "the time of the next start",
        outcome="the same",
        shown=(),
        events=("fatal",),
        exits=(65,),
        **_ENDS,
    ),
    Drill(
        name="retention_passes_the_offsets",
        fault="the daemon is down, and retention removes records that it has not read",
        outcome="stops with exit code 65; if allowed, it skips and counts them; the "
        "tables are complete again after a new snapshot of the source",
        shown=(Shown("source_skipped_offsets_total", "rises"),),
        events=("fatal",),
        exits=(65,),
        **_ENDS,
    ),
    Drill(
        name="driver_is_killed",
        fault="SIGKILL of the driver, alone or with its whole process group, at random moments",
        outcome="the next start repeats the unfinished batch only",
        shown=(),
        events=("running", "batch"),
        **_ENDS,
    ),
    Drill(
        name="jvm_is_killed",
        fault="SIGKILL of the JVM in the middle of a batch",
        outcome="the process exits within seconds; the next start resumes",
        shown=(),
        events=("fatal", "running", "batch"),
        **_ENDS,
        exits=(75,),
    ),
    Drill(
        name="executor_is_killed_in_a_batch",
        fault="SIGKILL of one of two executor processes in the middle of a batch",
        outcome="Spark retries its tasks and starts another executor; nothing is counted twice",
        shown=(Shown("executors", "rises", (("state", "dead"),)),),
        events=("batch",),
        unready="",
        alerts=("LakewardExecutorsLost",),
    ),
    Drill(
        name="stopped_during_a_long_batch",
        fault="SIGTERM in the middle of a batch of many seconds",
        outcome="the batch is finished and recorded, no other starts, exit code 0; nothing is "
        "repeated "
        "at the next start",
        shown=(Shown("state", "is set", (("state", "draining"),)),),
        events=("drain", "batch"),
        unready=None,
        dies=True,
        alerts=("LakewardDown",),
    ),
    Drill(
        name="disk_is_full_while_files_are_written",
        fault="the disk of the warehouse is full",
        outcome="the batch fails and is retried; it succeeds when space is freed",
        **_WAITS,
        unready="a disk is full",
        alerts=(
            "LakewardOutage",
            "LakewardDiskFilling",
            "LakewardQueryFailing",
            "LakewardNoCommit",
        ),
    ),
    Drill(
        name="disk_is_full_while_committing",
        fault="the disk has space for the first few files of a batch, one more each time",
        outcome="the same, whichever file fails: no snapshot references a missing file",
        **_WAITS,
        unready="a disk is full",
        alerts=("LakewardDiskFilling", "LakewardQueryFailing"),
    ),
    Drill(
        name="disk_of_the_checkpoint_is_full",
        fault="the disk of the checkpoint is full",
        outcome="the same",
        **_WAITS,
        unready="a disk is full",
        # not LakewardNoCommit: tables are committed, only Spark cannot note it
        alerts=("LakewardOutage", "LakewardDiskFilling", "LakewardQueryFailing"),
    ),
    Drill(
        name="store_answers_500",
        fault="the object store answers all requests with 500 for longer than they are retried",
        outcome="short failures are retried by the client; then batches fail, until the store "
        "recovers",
        **_WAITS,
        unready="the last batch failed",
        alerts=(
            "LakewardOutage",
            "LakewardStoreErrors",
            "LakewardQueryFailing",
            "LakewardNoCommit",
        ),
    ),
    Drill(
        name="store_is_slow",
        fault="every request to the object store takes 5 s longer",
        outcome="batches are slow; none fails",
        shown=(Shown("batch_duration_seconds_count", "rises"),),
        events=("batch",),
        unready="",
        alerts=("LakewardFreshness",),
    ),
    Drill(
        name="registry_is_down",
        fault="the schema registry answers 503, and records with a schema arrive that is not "
        "cached yet",
        outcome="the daemon retries until the schema is available; no record goes to quarantine",
        **_WAITS,
        unready="the schema registry does not answer",
        alerts=("LakewardOutage", "LakewardQueryFailing", "LakewardNoCommit"),
    ),
    Drill(
        name="clock_is_set_back",
        fault="the machine's clock goes back two hours, and forward again",
        outcome="the query is restarted, because Spark's trigger would wait for the old time; "
        "times of snapshots do not decrease, delays are never negative",
        shown=(Shown("last_success_timestamp_seconds", "falls"),),
        events=("clock_set_back", "batch"),
        unready="",
        alerts=("LakewardClockSkew",),
    ),
    Drill(
        name="schema_poison_on_one_table",
        fault="a column of one table gets a type to which it cannot be widened "
        "(`on.incompatible: quarantine_table`)",
        outcome="the table is parked, other tables continue; with another rule and `lakeward "
        "resume` it "
        "catches up, and the record that does not fit is in quarantine",
        shown=(Shown("table_state", "is set", (("state", "parked"),)),),
        events=("table_parked", "caught_up"),
        unready="",
        alerts=("LakewardTableParked", "LakewardSchemaRefused"),
    ),
    Drill(
        name="second_daemon_is_started",
        fault="another daemon of the same stream is started, with another checkpoint",
        outcome="it exits with code 75 and names the owner; the first one continues",
        shown=(Shown("batches_total", "rises", (("outcome", "committed"),)),),
        events=("fatal", "batch"),
        unready="",
        alerts=(),
    ),
    Drill(
        name="paused_daemon_wakes_up_after_a_take_over",
        fault="all processes of the daemon are suspended (SIGSTOP) in the middle of a batch, "
        "another takes "
        "over, and the first wakes up",
        outcome="the other waits for `pipeline.owner.ttl`, fences the batch of the first and "
        "continues; the first can no longer commit and exits with code 75",
        shown=(Shown("driver_epoch", "rises"),),
        events=("owner_silent", "owner", "fatal", "batch"),
        unready=None,
        dies=True,
        alerts=("LakewardDown",),
        exits=(75,),
    ),
)

DRILLS = {row.name: row for row in _ROWS}
