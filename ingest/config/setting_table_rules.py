# SPDX-License-Identifier: Apache-2.0
"""The settings of one entry of `tables` and of one entry of `route`; see `setting_table`."""

from ingest.config.setting_kinds import (
    Setting,
    boolean,
    bucket_count,
    choice,
    duration,
    text,
    text_list,
    text_map,
)

__all__ = ["ROUTE_SETTINGS", "TABLE_SETTINGS"]

TABLE_SETTINGS: tuple[Setting, ...] = (
    Setting(
        key="match",
        kind=text,
        required=True,
        doc="Target tables the rule is for, as `database.table`; `*` and `?` are wild cards.",
    ),
    Setting(
        key="primary.key",
        kind=text_list,
        doc="Primary key, for events without a Kafka key and for keys that have members which no "
        "row has (Debezium's topic routing adds one). Default: the columns of the Kafka key.",
    ),
    Setting(
        key="bucket",
        kind=bucket_count,
        doc="Short for the table property `bucket`; `auto` chooses the number of buckets of a new "
        "table by the size of its topics, once: one for every 2 GiB of events, as a power of two. "
        "A partitioned table gets one in each partition.",
    ),
    Setting(
        key="table.properties",
        kind=text_map,
        doc="Paimon options of the tables, over `sink.table.properties`.",
    ),
    Setting(
        key="toast",
        kind=choice("keep", "null", "fail"),
        default="keep",
        doc="What becomes of a large value that PostgreSQL does not send with an update because it "
        "did not change (TOAST): `keep` the one that the table holds, store `null`, or send the "
        "record to quarantine (`fail`). Tables that aggregate cannot keep: there it is `fail`.",
    ),
    Setting(
        key="bad.records",
        kind=choice("quarantine", "skip", "fail"),
        default="quarantine",
        doc="What becomes of records that cannot be decoded: kept in the quarantine table, counted "
        "and left out (not copied to `bad.records.topic` either), or the table is parked at the "
        "first one.",
    ),
    Setting(
        key="changelog-producer",
        kind=choice("none", "input", "lookup", "full-compaction"),
        doc="Short for the table property `changelog-producer`.",
    ),
    Setting(
        key="columns.exclude",
        kind=text_list,
        doc="Columns of the source that the table does not get; expressions may use them.",
    ),
    Setting(
        key="computed",
        kind=text_list,
        doc="Columns that are computed, `name = expression` each; see "
        "[Filters, computed columns, masks](transforms.md).",
    ),
    Setting(
        key="filter",
        kind=text,
        doc="Condition; rows that do not satisfy it are not in the table, also when an update "
        "takes them out of it.",
    ),
    Setting(
        key="mask",
        kind=text_map,
        doc="How columns are masked, by column: `sha256('salt')`, `md5('salt')`, `first(n)`, "
        "`last(n)`, `redact`, `null`. Rules for the same table add up.",
    ),
    Setting(
        key="deletes",
        kind=choice("hard", "soft"),
        default="hard",
        doc="Whether a delete removes the row, or sets `<prefix>deleted` (`soft`).",
    ),
    Setting(
        key="partition.by",
        kind=text_list,
        doc="Partition columns of a new table: names, or `name = expression`. A column outside "
        "of the primary key needs `bucket: -1`.",
    ),
    Setting(
        key="on.incompatible",
        kind=choice("quarantine_rows", "quarantine_table", "new_column", "string", "fail"),
        default="quarantine_rows",
        doc="What happens when a column gets a type that its own cannot be widened to. "
        "`new_column`: the values go to `<name>_<n>` beside it; `string`: the column becomes "
        "STRING where every value has a text, else as `new_column`; `quarantine_table`: the table "
        "is parked; `fail`: the stream stops, which is the default with `evolve`.",
    ),
    Setting(
        key="compaction",
        kind=choice("inline", "dedicated", "off"),
        doc="Who compacts: this stream (`inline`), `lakeward compact` (`dedicated`), or nobody. "
        "With the last two the stream writes only, and tables that it makes get the table property "
        "`write-only`; not said, that property of the table decides.",
    ),
    Setting(
        key="freshness",
        kind=duration,
        doc="How long the table may wait for its next snapshot; over "
        "`pipeline.trigger.idle.commit`. What is not above the trigger's interval is every batch; "
        "a topic of several tables waits as long as the most urgent one allows.",
    ),
    Setting(
        key="watermark",
        kind=text,
        doc="`<column> - <interval>`: written into snapshots as how far event time has come, the "
        "highest value of the TIMESTAMP column so far less the interval. It never goes back, and "
        "silent partitions do not hold it.",
    ),
    Setting(
        key="on.resnapshot",
        kind=choice("upsert", "sweep"),
        doc="Over `source.on.resnapshot`, for this table: `upsert` where snapshots bring a part of "
        "it only.",
    ),
)

ROUTE_SETTINGS: tuple[Setting, ...] = (
    Setting(
        key="source-table",
        kind=text,
        required=True,
        doc="Regular expression for the whole address of a source table: "
        "`server.database.schema.table` as the events say it (the server is the connector's topic "
        "prefix and may be left out; MySQL has no schema).",
    ),
    Setting(
        key="sink-table",
        kind=text,
        required=True,
        doc="Where it goes: `database.table`, or `table` in the default database. `$1`…`$9` are "
        "groups of the pattern, `<>` is the table's name, `${source.server}`, `${source.db}`, "
        "`${source.schema}` and `${source.table}` are parts of the address.",
    ),
    Setting(
        key="shard.column",
        kind=text,
        doc="Column that is added where several source tables share one table.",
    ),
    Setting(
        key="shard.value",
        kind=text,
        default="${source.db}",
        doc="What stands in it; with the references of `sink-table`.",
    ),
    Setting(
        key="shard.in.primary.key",
        kind=boolean,
        default=True,
        doc="Whether the shard column comes first in the primary key.",
    ),
    Setting(
        key="shard.keys.are.unique",
        kind=boolean,
        default=False,
        doc="State that no key is in two of the source tables, so that they may share a table "
        "without a shard column in the key.",
    ),
)
