# SPDX-License-Identifier: Apache-2.0
"""The lists of a configuration: entries of `tables` and of `route`."""

import dataclasses
import fnmatch
from collections.abc import Mapping

from ingest.config.choices import SWEEP_REMOVED
from ingest.config.setting import Section, redact_properties, section, setting
from ingest.config.setting_kinds import (
    boolean,
    bucket_count,
    choice,
    duration,
    text,
    text_list,
    text_map,
)

__all__ = ["Route", "Shard", "TableRule"]


def _kinds_of_masks(masks: Mapping[str, str]) -> dict[str, str]:
    """Masks without what is in their brackets, which may be a salt."""
    return {column: mask.partition("(")[0] for column, mask in masks.items()}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TableRule(Section):
    """One entry of `tables`; of several that match a table, later ones win key by key.

    None = the entry does not say. `table_properties` has `bucket` and `changelog_producer`, too.
    """

    match: str = setting("match", text, required=True)
    """Target tables the rule is for, as `database.table`; `*` and `?` are wild cards."""

    primary_key: tuple[str, ...] = setting("primary.key", text_list)
    """Primary key, for events without a Kafka key and for keys that have members which no row
    has (Debezium's topic routing adds one). Default: the columns of the Kafka key."""

    bucket: str | None = setting("bucket", bucket_count)
    """Short for the table property `bucket`; `auto` chooses the number of buckets of a new
    table by the size of its topics, once: one for every 2 GiB of events, as a power of two. A
    partitioned table gets one in each partition."""

    table_properties: Mapping[str, str] = setting(
        "table.properties", text_map, secret=redact_properties
    )
    """Paimon options of the tables, over `sink.table.properties`."""

    toast: str | None = setting("toast", choice("keep", "null", "fail"), default="keep", unset=None)
    """What becomes of a large value that PostgreSQL does not send with an update because it did
    not change (TOAST): `keep` the one that the table holds, store `null`, or send the record to
    quarantine (`fail`). Tables that aggregate cannot keep: there it is `fail`."""

    bad_records: str | None = setting(
        "bad.records", choice("quarantine", "skip", "fail"), default="quarantine", unset=None
    )
    """What becomes of records that cannot be decoded: kept in the quarantine table, counted and
    left out (not copied to `bad.records.topic` either), or the table is parked at the first
    one."""

    changelog_producer: str | None = setting(
        "changelog-producer", choice("none", "input", "lookup", "full-compaction")
    )
    """Short for the table property `changelog-producer`."""

    columns_exclude: tuple[str, ...] | None = setting("columns.exclude", text_list, unset=None)
    """Columns of the source that the table does not get; expressions may use them."""

    computed: tuple[str, ...] | None = setting("computed", text_list, unset=None)
    """Columns that are computed, `name = expression` each; see [Filters, computed columns,
    masks](transforms.md)."""

    filter: str | None = setting("filter", text)
    """Condition; rows that do not satisfy it are not in the table, also when an update takes
    them out of it."""

    mask: Mapping[str, str] | None = setting("mask", text_map, unset=None, secret=_kinds_of_masks)
    """How columns are masked, by column: `sha256('salt')`, `md5('salt')`, `first(n)`,
    `last(n)`, `redact`, `null`. Rules for the same table add up."""

    deletes: str | None = setting("deletes", choice("hard", "soft"), default="hard", unset=None)
    """Whether a delete removes the row, or sets `<prefix>deleted` (`soft`)."""

    partition_by: tuple[str, ...] | None = setting("partition.by", text_list, unset=None)
    """Partition columns of a new table: names, or `name = expression`. A column outside of the
    primary key needs `bucket: -1`."""

    on_incompatible: str | None = setting(
        "on.incompatible",
        choice("quarantine_rows", "quarantine_table", "new_column", "string", "fail"),
        default="quarantine_rows",
        unset=None,
    )
    """What happens when a column gets a type that its own cannot be widened to. `new_column`:
    the values go to `<name>_<n>` beside it; `string`: the column becomes STRING where every
    value has a text, else as `new_column`; `quarantine_table`: the table is parked; `fail`: the
    stream stops, which is the default with `evolve`."""

    compaction: str | None = setting("compaction", choice("inline", "dedicated", "off"))
    """Who compacts: this stream (`inline`), `lakeward compact` (`dedicated`), or nobody. With
    the last two the stream writes only, and tables that it makes get the table property
    `write-only`; not said, that property of the table decides."""

    freshness_s: float | None = setting("freshness", duration)
    """How long the table may wait for its next snapshot; over `pipeline.trigger.idle.commit`.
    What is not above the trigger's interval is every batch; a topic of several tables waits as
    long as the most urgent one allows."""

    watermark: str | None = setting("watermark", text)
    """`<column> - <interval>`: written into snapshots as how far event time has come, the
    highest value of the TIMESTAMP column so far less the interval. It never goes back, and
    silent partitions do not hold it."""

    on_resnapshot: str | None = setting("on.resnapshot", choice("upsert", removed=SWEEP_REMOVED))
    """As `source.on.resnapshot`, for this table."""

    @property
    def auto_bucket(self) -> bool | None:
        """Whether the size of its topics chooses a new table's buckets."""
        return None if self.bucket is None else self.bucket == "auto"

    def covers(self, table: str) -> bool:
        """Whether the rule is for `database.table`."""
        return fnmatch.fnmatchcase(table, self.match)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Shard(Section):
    """A column that tells the source tables of a shared table apart."""

    column: str = setting("shard.column", text)
    """Column that is added where several source tables share one table."""

    value: str = setting("shard.value", text, default="${source.db}")
    """What stands in it; with the references of `sink-table`."""

    in_primary_key: bool = setting("shard.in.primary.key", boolean, default=True)
    """Whether the shard column comes first in the primary key."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Route(Section):
    """One entry of `route`; the first whose pattern matches a source table counts."""

    source_table: str = setting("source-table", text, required=True)
    """Regular expression for the whole address of a source table:
    `server.database.schema.table` as the events say it (the server is the connector's topic
    prefix and may be left out; MySQL has no schema)."""

    sink_table: str = setting("sink-table", text, required=True)
    """Where it goes: `database.table`, or `table` in the default database. `$1`…`$9` are groups
    of the pattern, `<>` is the table's name, `${source.server}`, `${source.db}`,
    `${source.schema}` and `${source.table}` are parts of the address."""

    shard: Shard | None = section(Shard, default=None)
    keys_are_unique: bool = setting("shard.keys.are.unique", boolean, default=False)
    """State that no key is in two of the source tables, so that they may share a table without
    a shard column in the key."""

    @property
    def shares(self) -> bool:
        """Whether the rule lets several source tables into one table."""
        return self.shard is not None or self.keys_are_unique
