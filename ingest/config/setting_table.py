# SPDX-License-Identifier: Apache-2.0
"""The table of all settings: key, type, default, unit, meaning. Everything else follows from it.

`settings` parses by it, `docs/reference/configuration.md` is written from it, and suggestions for
unknown
keys come from it. Keys that are foreseen and that this version does not honour are listed too, so
that they are refused by name instead of being taken for a typing mistake.
"""

from ingest.config.setting_kinds import (
    Setting,
    boolean,
    change_kinds,
    choice,
    daily_window,
    duration,
    duration_from,
    fraction,
    identifier,
    integer,
    label_map,
    moment,
    offset_map,
    size,
    text,
    text_list,
    text_map,
)
from ingest.config.setting_lifecycle import LIFE_SETTINGS, LOG_SETTINGS
from ingest.config.setting_table_avro import AVRO_SETTINGS
from ingest.config.setting_table_operating import OPERATING_SETTINGS
from ingest.config.type_mapping import MAPPING_WORDS
from ingest.decode.dialects.formats import FORMATS

__all__ = [
    "NOT_YET",
    "SECTIONS",
    "SETTINGS",
]

_NAME = identifier(
    r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}",
    "letters, digits, `.`, `_` and `-`, at most 100, starting with a letter or digit",
)
_PART = r"[^./\\\s$:]+"
_DATABASE = identifier(
    rf"(?!sys$){_PART}", "a database name without dots, slashes, colons, `$` and blanks, not `sys`"
)
_TABLE = identifier(rf"(?!sys\.){_PART}\.{_PART}", "a table as `database.table`")

SECTIONS = {
    "pipeline": "What the stream is called, where it keeps its place and how often it commits.",
    "source": "Where events come from and what the producer made of them.",
    "sink": "Where tables are written.",
    "bad.records": "What happens to records that cannot be decoded.",
    "maintenance": "What is done to tables beside writing them.",
    "metrics": "The HTTP endpoint with metrics, health, readiness and status.",
    "control": "What may be done over the endpoint, besides looking "
    "(`docs/reference/status-api.md`).",
    "alerts": "Who is told when something happens that a person should know.",
    "log": "Logs go to standard error.",
    "spark": "The engine. Defaults run everything on this machine.",
}

SETTINGS: tuple[Setting, ...] = (
    Setting(
        key="pipeline.name",
        kind=_NAME,
        required=True,
        doc="Name of the stream: Spark query name and Paimon commit user. Never change it: "
        "exactly-once rests on it.",
    ),
    Setting(
        key="pipeline.checkpoint",
        kind=text,
        doc="Directory for Spark's offset log, local or mounted. For a local warehouse the default "
        "is `<warehouse>/.lakeward/<name>/checkpoint`; for any other it must be given. If it is "
        "lost, offsets are rebuilt from the tables.",
    ),
    Setting(
        key="pipeline.schema.change.behavior",
        kind=choice("lenient", "evolve", "try_evolve", "ignore", "exception"),
        default="lenient",
        doc="What becomes of changes of the source's schema, in Flink CDC's words "
        "(`docs/guides/schema-changes.md`). `lenient`: add and widen columns, lose nothing; "
        "`evolve`: "
        "also rename and drop them, stop at what cannot be done; `try_evolve`: the same, but go "
        "on; `ignore`: change nothing, the known columns flow; `exception`: stop at any change.",
    ),
    Setting(
        key="pipeline.delivery",
        kind=choice("exactly_once"),
        default="exactly_once",
        doc="Exactly once per table; there is no other.",
    ),
    Setting(
        key="pipeline.trigger.interval",
        kind=duration,
        default="30s",
        doc="Time between two micro-batches; each batch is one snapshot per changed table. "
        "Shorter: fresher tables, more small files.",
    ),
    Setting(
        key="pipeline.trigger.max.records",
        kind=integer(1),
        default=2_000_000,
        unit="records",
        doc="Bound of one micro-batch over all partitions.",
    ),
    Setting(
        key="pipeline.trigger.max.bytes",
        kind=size,
        default="1gb",
        unit="bytes",
        doc="Bound of one micro-batch in payload bytes, estimated by sampling.",
    ),
    Setting(
        key="pipeline.trigger.idle.commit",
        kind=duration,
        doc="How long a table with few rows may wait for its next snapshot, so that it has fewer "
        "files: its records stay in the source until the time is up or 10,000 are there. `--once` "
        "waits for nothing. Default: every batch.",
    ),
    *LIFE_SETTINGS,
    Setting(
        key="source.type",
        kind=choice("kafka", "files"),
        required=True,
        doc="`kafka`, or `files`: a directory of events, one per line (archived topics).",
    ),
    Setting(
        key="source.format",
        kind=choice(*FORMATS),
        default="debezium-json",
        doc="Format of the events. `debezium-json`: envelopes, with or without schema block per "
        "event. `debezium-avro`: envelopes in Avro, with a schema registry. `debezium-flat`: rows "
        "of `ExtractNewRecordState`. `upsert-json`: key and row, a null value deletes; "
        "`upsert-avro`: the same in Avro. `canal-json`, `maxwell-json`, `ogg-json`, "
        "`aws-dms-json`: of those tools. `json`: every record is an insert, into tables that need "
        "no primary key.",
    ),
    Setting(
        key="source.flat.metadata.prefix",
        kind=text,
        default="__",
        doc="For `debezium-flat`: prefix of members that are no columns (`add.fields.prefix`).",
    ),
    Setting(
        key="source.flat.metadata.columns",
        kind=text_list,
        doc="For `debezium-flat`: members with that prefix that are columns all the same.",
    ),
    Setting(
        key="source.flat.tombstones",
        kind=choice("delete", "skip"),
        default="delete",
        doc="For `debezium-flat`: whether a null value deletes the row of its key. `skip` where "
        "deletes come as rewritten rows or not at all.",
    ),
    Setting(
        key="source.bootstrap.servers",
        kind=text,
        doc="Kafka brokers, `host:port[,host:port]`. Required for `kafka`.",
    ),
    Setting(
        key="source.path",
        kind=text,
        doc="Directory with one folder per topic, or files named `<topic>.<anything>`. Required "
        "for `files`.",
    ),
    Setting(
        key="source.lines",
        kind=choice("auto", "value", "archived"),
        default="auto",
        doc="For `files`: what a line is. `value`: an event. `archived`: a record with its key, a "
        "JSON object of `value` and any of `key`, `headers`, `timestamp`, `topic`, `partition`, "
        "`offset`. `auto`: archived where it is such an object and no other; in `json`, "
        "`upsert-json` and `debezium-flat` it may be a row as well, so the stream stops there and "
        "asks.",
    ),
    Setting(
        key="source.topics",
        kind=text_list,
        doc="Exact topic names. For `kafka` give these or `source.topics.pattern`.",
    ),
    Setting(
        key="source.topics.pattern",
        kind=text,
        doc="Regular expression that a whole topic name must match; new topics are found while "
        "running.",
    ),
    Setting(
        key="source.topics.exclude",
        kind=text_list,
        doc="Regular expressions; a topic whose whole name matches one is left out.",
    ),
    Setting(
        key="source.topic.discovery.interval",
        kind=duration,
        doc="How often new topics, partitions or files are looked for. Default: `5m` for `kafka`, "
        "`1s` for `files`.",
    ),
    Setting(
        key="source.scan.startup.mode",
        kind=choice("earliest", "latest", "timestamp", "specific-offsets"),
        default="earliest",
        doc="Where a stream without a checkpoint starts. Later starts go on where the stream was.",
    ),
    Setting(
        key="source.scan.startup.timestamp",
        kind=moment,
        unit="epoch ms",
        doc="For `timestamp`: the first record not older than this.",
    ),
    Setting(
        key="source.scan.startup.offsets",
        kind=offset_map,
        doc="For `specific-offsets`: topic to partition to offset (-2 earliest, -1 latest).",
    ),
    Setting(
        key="source.fail.on.data.loss",
        kind=boolean,
        default=True,
        doc="Stop when records that the stream still needs are gone from the source. `false`: skip "
        "them and count them in `lakeward_source_skipped_offsets_total`.",
    ),
    Setting(
        key="source.properties",
        kind=text_map,
        doc="librdkafka client properties, passed through (`security.protocol`, `sasl.username`, "
        "…). Take secrets from `${file:/path}`.",
    ),
    Setting(
        key="source.debezium.decimal.handling.mode",
        kind=choice("precise", "string", "double"),
        default="precise",
        doc="As set on the connector. Needed only for events without schema block.",
    ),
    Setting(
        key="source.debezium.binary.handling.mode",
        kind=choice("bytes", "base64", "base64-url-safe", "hex"),
        default="bytes",
        doc="As set on the connector.",
    ),
    Setting(
        key="source.debezium.time.precision.mode",
        kind=choice("adaptive", "adaptive_time_microseconds", "connect", "isostring"),
        default="adaptive",
        doc="As set on the connector.",
    ),
    Setting(
        key="source.debezium.unavailable.value.placeholder",
        kind=text,
        default="__debezium_unavailable_value",
        doc="As set on the connector: what stands for a large value that did not change.",
    ),
    Setting(
        key="source.debezium.schema.change.topic",
        kind=text,
        doc="Topic of the connector's schema changes, for renamed and dropped columns.",
    ),
    Setting(
        key="source.debezium.signal.topic",
        kind=text,
        doc="The connector's `signal.kafka.topic`, through which `lakeward resnapshot` asks for "
        "snapshots of single tables.",
    ),
    Setting(
        key="source.debezium.notification.topic",
        kind=text,
        doc="The connector's `notification.sink.topic.name`, which tells how far a snapshot is.",
    ),
    *AVRO_SETTINGS,
    Setting(
        key="source.ordering",
        kind=choice("kafka", "source"),
        default="kafka",
        doc="Which of two changes of a key is the later one. `kafka`: the later record of its "
        "partition. `source`: the later position in the source's log, for "
        "topics that are merged or repartitioned; new tables have columns for it (MySQL, MariaDB, "
        "PostgreSQL, SQL Server, Oracle in Debezium's formats).",
    ),
    Setting(
        key="source.names.case",
        kind=choice("insensitive", "exact"),
        default="insensitive",
        doc="Whether a column of events that differs from a column of the table in letter case or "
        "Unicode normal form alone is that column. `insensitive`: it is, unless the table or one "
        "event has both spellings. `exact`: it is another column. See "
        "[schema-changes.md](../guides/schema-changes.md#letter-case-of-names).",
    ),
    Setting(
        key="source.on.truncate",
        kind=choice("ignore", "apply", "fail"),
        default="ignore",
        doc="What a TRUNCATE of the source does: nothing but being counted, empty the table (fed "
        "by one partition; others are parked), or stop the stream.",
    ),
    Setting(
        key="source.on.resnapshot",
        kind=choice("upsert", "sweep"),
        default="upsert",
        doc="What a new snapshot of a table (initial or blocking, in Debezium's formats) does: "
        "bring its rows, or also delete the rows that it does not bring (`sweep`; fed by one "
        "partition, other tables are left). Not where snapshots bring a part of the rows: "
        "`snapshot.select.statement.overrides`, conditions of a blocking snapshot.",
    ),
    Setting(key="sink.type", kind=choice("paimon"), default="paimon", doc="The table format."),
    Setting(
        key="sink.warehouse",
        kind=text,
        required=True,
        doc="Directory of the databases and tables, or `s3://bucket/directory`. A relative path "
        "counts from the working directory.",
    ),
    Setting(
        key="sink.options",
        kind=text_map,
        doc="Options of the object store: `s3.endpoint`, `s3.region`, `s3.access-key`, "
        "`s3.secret-key`, `s3.session-token`, `s3.path-style-access`, `s3.anonymous`, "
        "`s3.server-side-encryption`, `s3.kms-key-id`; `store.max-retries` (6), "
        "`store.retry-timeout` (30 s), `store.request-timeout` (60 s), `store.connect-timeout` "
        "(5 s). What is missing comes from the `AWS_…` variables of every process, or from its "
        "role. Take secrets from `${file:/path}`.",
    ),
    Setting(
        key="sink.default.database",
        kind=_DATABASE,
        default="lakeward",
        doc="Database of the quarantine table, and of events whose source names no database.",
    ),
    Setting(
        key="sink.names.sanitize",
        kind=boolean,
        default=False,
        doc="Replace what the table format forbids in names of databases and tables: each of "
        "`/ \\ $ . :`, control characters and blanks at the ends becomes `_`, the database `sys` "
        "becomes `sys_`, and a name of more than 255 bytes is cut and gets a hash. Without it, "
        "and for the second of two source tables whose names become one, records go to "
        "quarantine. See [quarantine.md](../guides/quarantine.md#names-that-cannot-be-used).",
    ),
    Setting(
        key="sink.table.properties",
        kind=text_map,
        default={"bucket": "1"},
        doc="Paimon options of every table that Lakeward creates. Your entries are added to the "
        "default; existing tables keep theirs.",
    ),
    Setting(
        key="sink.include.schema.changes",
        kind=change_kinds,
        doc="Kinds of schema changes that are made; default all. `create.table`, `add.column`, "
        "`alter.column.type`, `rename.column`, `drop.column`, `truncate.table`, `drop.table`, or "
        "words of one: `column`, `drop`. In `lenient` the last two must be named.",
    ),
    Setting(
        key="sink.exclude.schema.changes",
        kind=change_kinds,
        doc="Kinds of schema changes that are not made, as above; wins over the included ones. "
        "Columns that are not added are left out of the rows.",
    ),
    Setting(
        key="sink.type.mapping",
        kind=text_list,
        doc="Types of new columns where there is a choice (see types.md): "
        + "; ".join(f"`{word}`: {what}" for word, what in MAPPING_WORDS.items())
        + ".",
    ),
    Setting(
        key="sink.metadata.columns.columns",
        kind=text_list,
        doc="Metadata columns that every table gets, such as `op, source_ts_ms`; see "
        "[the list](transforms.md#metadata-columns).",
    ),
    Setting(
        key="sink.metadata.columns.prefix",
        kind=text,
        default="_cdc_",
        doc="What metadata columns begin with, and the mark of soft deletes.",
    ),
    Setting(
        key="sink.time.zone",
        kind=text,
        default="UTC",
        doc="Zone in whose wall clocks expressions see a TIMESTAMP_LTZ, as `Europe/Berlin`.",
    ),
    Setting(
        key="bad.records.table",
        kind=_TABLE,
        doc="Table that takes undecodable records whole. Default: "
        "`<sink.default.database>._quarantine`.",
    ),
    Setting(
        key="bad.records.topic",
        kind=text,
        doc="Kafka topic that gets a copy of every record that goes to quarantine, on the source's "
        "brokers, at least once. It must exist, and the source must not read it.",
    ),
    Setting(
        key="bad.records.max.ratio",
        kind=fraction,
        doc="Share of bad records of a table in one batch above which the table is parked, with "
        "nothing of that batch committed for it. Batches with fewer than 100 records of the table "
        "do not count, nor do records of which it is not known for which table they are.",
    ),
    Setting(
        key="maintenance.snapshot.retain",
        kind=duration,
        doc="How long old snapshots can be read, for tables that Lakeward creates (sets their "
        "`snapshot.time-retained`). Default: the table format's `1h`.",
    ),
    Setting(
        key="maintenance.compaction.window",
        kind=daily_window,
        doc="Time of day, such as `01:00-05:00` or `22:30-04:00 Europe/Berlin` (UTC if it does not "
        "say), in which the tables of the stream are compacted fully, in the background, once each "
        "day. What is not done when it ends is done the next day.",
    ),
    Setting(
        key="maintenance.orphan.clean",
        kind=duration_from(3600, "1h"),
        doc="Remove files of the stream's tables that nothing names and that were not written for "
        "so long, once a day. Batches must take less time than that. Default: they stay; "
        "`lakeward orphans` removes them.",
    ),
    Setting(
        key="metrics.enabled", kind=boolean, default=True, doc="Whether the endpoint is opened."
    ),
    Setting(
        key="metrics.host",
        kind=text,
        default="127.0.0.1",
        doc="Address to listen on. In a container use `0.0.0.0`; there is no authentication.",
    ),
    Setting(
        key="metrics.port",
        kind=integer(0, 65535),
        default=9108,
        doc="Port; 0 takes any free one and logs which.",
    ),
    *OPERATING_SETTINGS,
    Setting(
        key="metrics.labels",
        kind=label_map,
        doc="Labels that every series gets, such as `{region: eu}`.",
    ),
    Setting(
        key="metrics.per.table",
        kind=boolean,
        default=True,
        doc="Whether every table has series of its own. `false`: one series for all, with an empty "
        "`table`: counters and histograms added up, of gauges the sum, the largest or the smallest "
        "(see metrics.md).",
    ),
    Setting(
        key="metrics.max.tables",
        kind=integer(0),
        default=500,
        doc='Tables with series of their own, about 80 each; the others share `table="other"`.',
    ),
    Setting(
        key="log.level",
        kind=choice("debug", "info", "warning", "error"),
        default="info",
        doc="Least severe level that is written.",
    ),
    Setting(
        key="log.format",
        kind=choice("auto", "text", "json"),
        default="auto",
        doc="`auto`: text on a terminal, JSON lines elsewhere. Executors of a cluster write JSON "
        "lines whatever it says.",
    ),
    *LOG_SETTINGS,
    Setting(
        key="spark.master",
        kind=text,
        doc="Spark master URL. Default: `local[N,4]` with one slot per core. "
        "`k8s://https://kubernetes.default.svc`: executors as pods (deploy/README.md).",
    ),
    Setting(
        key="spark.parallelism",
        kind=integer(1),
        unit="tasks",
        doc="Tasks per stage. Default: the cores that this process may use, or those of all "
        "executor pods. On other clusters set it to the executors' cores.",
    ),
    Setting(
        key="spark.conf",
        kind=text_map,
        doc="Spark properties; they win over Lakeward's own.",
    ),
)

NOT_YET: tuple[str, ...] = (
    "transform",
    "source.debezium.ignore",
)
"""Keys (and everything below them) that are planned; using one is an error that says so."""
