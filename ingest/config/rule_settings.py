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
    table_pattern,
    text,
    text_list,
    text_map,
)


def _kinds_of_masks(masks: Mapping[str, str]) -> dict[str, str]:
    """Return masks without their arguments, which may be salts."""
    return {column: mask.partition("(")[0] for column, mask in masks.items()}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TableRule(Section):
    """One entry of `tables`; of several that match a table, later ones override key by key.

    None = not set. `table_properties` also contains `bucket` and `changelog_producer`.
    """

    match: str = setting("match", table_pattern, required=True)
    """Target tables of the rule, as `database.table`; `*` and `?` are wildcards."""

    primary_key: tuple[str, ...] = setting("primary.key", text_list)
    """Primary key, for events without a Kafka key and for keys with fields that no row has
    (Debezium's topic routing adds one). Default: the columns of the Kafka key."""

    bucket: str | None = setting("bucket", bucket_count)
    """Short for the table property `bucket`; `auto` chooses the number of buckets of a new table by
    the size of its topics, once: one per 2 GiB of events, rounded to a power of two. A partitioned
    table gets one per partition."""

    table_properties: Mapping[str, str] = setting(
        "table.properties", text_map, secret=redact_properties
    )
    """Paimon options of the tables; override `sink.table.properties`."""

    toast: str | None = setting("toast", choice("keep", "null", "fail"), default="keep", unset=None)
    """Handling of a large value that PostgreSQL omits from an update because it did not change
    (TOAST): `keep` the stored one, store `null`, or send the record to quarantine (`fail`). Tables
    with aggregation cannot keep values: for them `keep` means `fail`."""

    bad_records: str | None = setting(
        "bad.records", choice("quarantine", "skip", "fail"), default="quarantine", unset=None
    )
    """Handling of records that cannot be decoded: `quarantine` stores them in the quarantine table,
    `skip` counts and drops them (without a copy in `bad.records.topic`), `fail` parks the table at
    the first one."""

    changelog_producer: str | None = setting(
        "changelog-producer", choice("none", "input", "lookup", "full-compaction")
    )
    """Short for the table property `changelog-producer`."""

    columns_exclude: tuple[str, ...] | None = setting("columns.exclude", text_list, unset=None)
    """Columns of the source to omit from the table; expressions may still use them."""

    computed: tuple[str, ...] | None = setting("computed", text_list, unset=None)
    """Computed columns, `name = expression` each; see [Filters, computed columns,
    masks](transforms.md)."""

    filter: str | None = setting("filter", text)
    """Condition; rows that do not satisfy it are not in the table. An update after which a row no
    longer satisfies it deletes the row."""

    mask: Mapping[str, str] | None = setting("mask", text_map, unset=None, secret=_kinds_of_masks)
    """Masks by column: `sha256('salt')`, `md5('salt')`, `first(n)`, `last(n)`, `redact`, `null`.
    Masks of several matching rules are combined."""

    deletes: str | None = setting("deletes", choice("hard", "soft"), default="hard", unset=None)
    """Whether a delete removes the row, or sets `<prefix>deleted` (`soft`)."""

    partition_by: tuple[str, ...] | None = setting("partition.by", text_list, unset=None)
    """Partition columns of a new table: names, or `name = expression`. A column that is not in the
    primary key requires `bucket: -1`."""

    on_incompatible: str | None = setting(
        "on.incompatible",
        choice("quarantine_rows", "quarantine_table", "new_column", "string", "fail"),
        default="quarantine_rows",
        unset=None,
    )
    """Handling of a column whose new type its type cannot be widened to. `quarantine_rows`: rows
    that need it go to quarantine; `new_column`: the values go to an additional column `<name>_<n>`;
    `string`: the column becomes STRING if every value has a text form, else as `new_column`;
    `quarantine_table`: the table is parked; `fail`: the stream stops, which is the default with
    `evolve`."""

    compaction: str | None = setting("compaction", choice("inline", "dedicated", "off"))
    """Who compacts the table: this stream (`inline`), `lakeward compact` (`dedicated`), or no
    process (`off`). With the last two the stream only writes, and tables that it creates get the
    table property `write-only`. Default: as that property of the table says."""

    freshness_s: float | None = setting("freshness", duration)
    """Maximum delay of the next snapshot of the table; overrides `pipeline.trigger.idle.commit`. A
    value up to the trigger interval means every batch. A topic of several tables waits for the
    shortest delay."""

    watermark: str | None = setting("watermark", text)
    """`<column> - <interval>`: watermark of snapshots, the maximum of the TIMESTAMP column so far
    minus the interval. It never decreases, and idle partitions do not hold it back."""

    on_resnapshot: str | None = setting("on.resnapshot", choice("upsert", removed=SWEEP_REMOVED))
    """Overrides `source.on.resnapshot` for this table."""

    @property
    def auto_bucket(self) -> bool | None:
        """Whether the size of the topics determines the buckets of a new table."""
        return None if self.bucket is None else self.bucket == "auto"

    def covers(self, table: str) -> bool:
        """Return whether the rule applies to `database.table`."""
        return fnmatch.fnmatchcase(table, self.match)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Shard(Section):
    """A column that distinguishes the source tables of a shared table."""

    column: str = setting("shard.column", text)
    """Column that is added if several source tables share one table."""

    value: str = setting("shard.value", text, default="${source.db}")
    """Value of that column; may contain the references of `sink-table`."""

    in_primary_key: bool = setting("shard.in.primary.key", boolean, default=True)
    """Whether the shard column comes first in the primary key."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Route(Section):
    """One entry of `route`; the first whose pattern matches a source table applies."""

    source_table: str = setting("source-table", text, required=True)
    """Regular expression that must match the full address of a source table:
    `server.database.schema.table` as in the events (the server is the connector's topic prefix and
    may be omitted; MySQL has no schema)."""

    sink_table: str = setting("sink-table", text, required=True)
    """Target table: `database.table`, or `table` in the default database. `$1`…`$9` are groups of
    the pattern, `<>` is the name of the source table, `${source.server}`, `${source.db}`,
    `${source.schema}` and `${source.table}` are parts of its address."""

    shard: Shard | None = section(Shard, default=None)
    keys_are_unique: bool = setting("shard.keys.are.unique", boolean, default=False)
    """Declares that no key occurs in two of the source tables, so that they may share a table
    without a shard column in the key."""

    @property
    def shares(self) -> bool:
        """Whether the rule lets several source tables share one table."""
        return self.shard is not None or self.keys_are_unique
