# SPDX-License-Identifier: Apache-2.0
import pickle
import sys

import pytest

from ingest.config import settings_page
from ingest.config.settings import NOT_YET, SETTINGS, Settings
from ingest.config.settings_page import SECTIONS, main, with_tables
from ingest.config.settings_sources import SeveralMistakesError, mistakes_of
from ingest.config.source_settings import FileSourceSettings, KafkaSourceSettings
from ingest.daemon.configuration import load_settings, resolve
from ingest.decode.decoders import dialect_options
from storage.errors import (
    InternalError,
    InvalidOptionError,
    NotFoundError,
    UnsupportedFeatureError,
)

MINIMAL = r"""
source: { type: kafka, bootstrap.servers: kafka:9092, topics.pattern: 'shop\..*' }
sink:   { type: paimon, warehouse: /data/warehouse }
pipeline: { name: shop }
"""

FILES = """
source: {type: files, path: events}
sink: {warehouse: warehouse}
pipeline: {name: shop}
"""


@pytest.fixture
def load(tmp_path):
    def load_text(text, overrides=None, environ=None):
        path = tmp_path / "lakeward.yaml"
        path.write_text(text, encoding="utf-8")
        return load_settings(path, overrides, environ=environ or {})

    return load_text


def test_minimal_file_is_enough(load):
    settings = load(MINIMAL)
    assert isinstance(settings.source, KafkaSourceSettings)
    assert settings.source.bootstrap_servers == "kafka:9092"
    assert settings.source.topics_pattern == r"shop\..*"
    assert settings.source.startup_mode == "earliest"
    assert settings.pipeline.checkpoint == "/data/warehouse/.lakeward/shop/checkpoint"
    assert settings.pipeline.trigger_interval_s == 30.0
    assert settings.pipeline.max_records == settings.source.max_records == 2_000_000
    assert settings.source.max_bytes == 1 << 30
    assert settings.table_properties("shop.orders") == {"bucket": "1"}
    assert settings.primary_key("shop.orders") == ()
    assert settings.bad_records.table == "lakeward._quarantine"
    assert settings.metrics.port == 9108


@pytest.mark.parametrize(
    ("name", "lines", "expected"),
    [
        ("debezium-json", None, "auto"),
        ("canal-json", None, "auto"),
        ("json", None, "ask"),
        ("upsert-json", "auto", "ask"),
        ("debezium-flat", None, "ask"),
        ("json", "value", "value"),
        ("debezium-flat", "archived", "archived"),
    ],
)
def test_where_a_row_may_look_like_an_archived_record_the_lines_are_asked_for(
    load, name, lines, expected
):
    said = f", lines: {lines}" if lines else ""
    settings = load(FILES.replace("type: files,", f"type: files, format: {name}{said},"))
    assert isinstance(settings.source, FileSourceSettings)
    assert settings.source.lines == expected


def test_lines_are_not_for_kafka(load):
    kafka = "type: kafka, bootstrap.servers: k:1, topics: [t], lines: value"
    with pytest.raises(InvalidOptionError, match="does not apply to the kafka source") as caught:
        load(FILES.replace("type: files, path: events", kafka))
    assert caught.value.context["key"] == "source.lines"


def test_relative_paths_become_absolute(load, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = load(FILES)
    assert isinstance(settings.source, FileSourceSettings)
    assert settings.source.path == str(tmp_path / "events")
    assert settings.sink.warehouse == str(tmp_path / "warehouse")


def test_nested_and_dotted_keys_mean_the_same(load):
    nested = FILES + "metrics:\n  port: 1\nlog: {level: debug}\n"
    dotted = FILES + "metrics.port: 1\nlog.level: debug\n"
    assert load(nested) == load(dotted)


def test_a_setting_in_two_spellings_is_refused(load):
    with pytest.raises(InvalidOptionError, match="duplicate setting"):
        load(FILES + "metrics.port: 1\nmetrics: {port: 2}\n")


def test_a_yaml_key_given_twice_is_refused_with_its_place(load):
    with pytest.raises(InvalidOptionError, match=r"line 5.*duplicate key `pipeline`"):
        load(FILES + "pipeline: {name: other}\n")


def test_precedence_is_flag_environment_file_default(load):
    text = FILES + "metrics: {port: 1}\nlog: {level: debug}\nspark: {parallelism: 3}\n"
    environ = {"LAKEWARD__METRICS__PORT": "2", "LAKEWARD__LOG__LEVEL": "warning"}
    settings = load(text, {"metrics.port": "3"}, environ)
    assert settings.metrics.port == 3
    assert settings.log.level == "warning"
    assert settings.spark.parallelism == settings.source.parallelism == 3
    assert settings.metrics.host == "127.0.0.1"


def test_environment_names_of_dotted_keys(load):
    environ = {
        "LAKEWARD__PIPELINE__TRIGGER__INTERVAL": "5s",
        "LAKEWARD__SINK__DEFAULT_DATABASE": "ods",
        "LAKEWARD__SINK__TABLE_PROPERTIES": "{bucket: 8}",
    }
    settings = load(FILES, environ=environ)
    assert settings.pipeline.trigger_interval_s == 5.0
    assert settings.bad_records.table == "ods._quarantine"
    assert settings.table_properties("a.b") == {"bucket": "8"}


def test_unknown_environment_variable_is_refused_with_a_suggestion(load):
    with pytest.raises(InvalidOptionError, match="LAKEWARD__METRICS__PORT"):
        load(FILES, environ={"LAKEWARD__METRICS__PROT": "1"})


def test_later_files_win_and_maps_are_merged(tmp_path):
    base, site = tmp_path / "base.yaml", tmp_path / "site.yaml"
    base.write_text(MINIMAL + "source.properties: {a: 1, b: 2}\nmetrics.port: 1\n")
    site.write_text("source.properties: {b: 3}\nmetrics: {port: 2}\n")
    settings = load_settings([base, site], environ={})
    assert settings.source.properties == {"a": "1", "b": "3"}
    assert settings.metrics.port == 2


def test_mistakes_are_told_together_each_with_its_place(tmp_path):
    base, site = tmp_path / "base.yaml", tmp_path / "site.yaml"
    base.write_text(FILES + "tables:\n  - {match: a.b}\nmetrics: {port: many}\n")
    site.write_text("log:\n  levl: info\ntables:\n  - match: a.c\n    bukket: 3\n")
    with pytest.raises(SeveralMistakesError, match="3 mistakes") as caught:
        load_settings([base, site], environ={})
    places = [each.context["at"] for each in mistakes_of(caught.value)]
    assert places == [f"{site}:2:3", f"{base}:7:11", f"{site}:5:5"]
    assert all(place in str(caught.value) for place in places)
    with pytest.raises(InvalidOptionError) as caught:
        load_settings(base, {"metrics.port": "lots"}, environ={})
    assert "at" not in caught.value.context, "the file is not to blame"


def test_one_entry_of_a_map_can_be_set_by_flag(load):
    settings = load(FILES, {"sink.table.properties.changelog-producer": "input"})
    assert settings.sink.table_properties == {"bucket": "1", "changelog-producer": "input"}


@pytest.mark.parametrize(
    ("key", "suggestion"),
    [
        ("pipeline.trigger.intervall", "pipeline.trigger.interval"),
        ("source.bootstrap.server", "source.bootstrap.servers"),
        ("sink.ware.house", "sink.warehouse"),
        ("pipeline.interval", "pipeline.trigger.interval"),
    ],
)
def test_unknown_keys_are_errors_with_a_suggestion(load, key, suggestion):
    with pytest.raises(InvalidOptionError) as caught:
        load(FILES, {key: "1"})
    assert caught.value.hint == f"did you mean `{suggestion}`?"


def test_keys_of_later_versions_are_refused_by_name(load):
    with pytest.raises(UnsupportedFeatureError, match="not supported yet"):
        load(FILES + "transform: []")


def test_labels_of_metrics_are_checked(load):
    settings = load(FILES + "metrics: {labels: {team: x}, per.table: false, max.tables: 3}")
    assert dict(settings.metrics.labels) == {"team": "x"}
    assert (settings.metrics.per_table, settings.metrics.max_tables) == (False, 3)
    for wrong in ("{topic: x}", "{job: x}", "{__a: x}", "{1a: x}"):
        with pytest.raises(InvalidOptionError, match=r"metrics\.labels|label"):
            load(FILES + f"metrics: {{labels: {wrong}}}")


def test_planned_and_present_keys_do_not_overlap():
    known = {row.key for row in SETTINGS}
    assert not [key for key in NOT_YET if key in known]


@pytest.mark.parametrize(
    ("key", "value", "wanted"),
    [
        ("metrics.port", "many", "an integer"),
        ("metrics.port", "70000", "from 0 to 65535"),
        ("pipeline.trigger.interval", "30", "duration such as"),
        ("pipeline.trigger.max.bytes", "lots", "size such as"),
        ("pipeline.trigger.max.records", "0", "an integer from 1"),
        ("pipeline.name", "../x", "letters, digits"),
        ("source.fail.on.data.loss", "maybe", "`true` or `false`"),
        ("log.level", "loud", "one of `debug`"),
        ("bad.records.table", "quarantine", "database.table"),
        ("source.scan.startup.timestamp", "yesterday", "milliseconds since 1970"),
        ("maintenance.orphan.clean", "59m", "at least `1h`"),
        ("maintenance.compaction.window", "at night", "a time of day"),
    ],
)
def test_malformed_values_say_key_value_and_wish(load, key, value, wanted):
    with pytest.raises(InvalidOptionError) as caught:
        load(FILES, {key: value})
    assert caught.value.context == {"key": key, "value": value}
    assert wanted in caught.value.detail


def test_what_stands_where_a_map_should_is_not_shown(load):
    with pytest.raises(InvalidOptionError, match="a map of names") as caught:
        load(FILES, {"spark.conf": "hush"})
    assert caught.value.context == {"key": "spark.conf"}
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("section", ["source", "sink", "pipeline"])
def test_missing_required_settings_are_named(load, section):
    lines = [line for line in FILES.splitlines() if not line.startswith(section)]
    with pytest.raises(InvalidOptionError, match="required") as caught:
        load("\n".join(lines))
    assert caught.value.context["key"].startswith(section)


def test_startup_offsets_and_timestamps(load):
    text = MINIMAL + (
        "source.scan.startup.mode: specific-offsets\n"
        "source.scan.startup.offsets: {orders: {0: 42}}\n"
    )
    assert load(text).source.startup_offsets == {"orders": {"0": 42}}
    text = FILES + (
        "source.scan.startup.mode: timestamp\nsource.scan.startup.timestamp: 2026-01-31T08:00:00Z\n"
    )
    assert load(text).source.startup_timestamp_ms == 1_769_846_400_000


STORE = """
sink.warehouse: s3://lake/ware/house/
sink.options: {s3.endpoint: "http://minio:9000", s3.access-key: AKIA1, s3.secret-key: hush}
"""


def in_a_store(text=FILES):
    return "\n".join(line for line in text.splitlines() if "sink" not in line) + STORE


def test_a_warehouse_in_an_object_store(load):
    settings = load(in_a_store(), {"pipeline.checkpoint": "/var/lib/shop"})
    assert settings.sink.warehouse == "s3://lake/ware/house"
    assert settings.sink.options["s3.secret-key"] == "hush"
    assert Settings.from_json(settings.to_json()) == settings
    for text in (repr(settings), repr(settings.sink), str(settings.redacted())):
        assert "hush" not in text
        assert "AKIA1" not in text


OUTSIDE = {"pipeline.checkpoint": "/var/lib/shop"}


@pytest.mark.parametrize(
    ("text", "overrides", "message"),
    [
        (FILES, {"source.bootstrap.servers": "kafka:9092"}, "does not apply to the files source"),
        (FILES.replace("type: files, path: events", "type: kafka, topics: [a]"), {}, "brokers"),
        (FILES, {"pipeline.checkpoint": "s3://bucket/state"}, "local or mounted"),
        (in_a_store(), {}, r"pipeline\.checkpoint"),
        (in_a_store().replace("s3.endpoint", "s3.enpoint"), OUTSIDE, r"s3\.endpoint"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(load, text, overrides, message):
    with pytest.raises(InvalidOptionError, match=message):
        load(text, overrides)


def test_table_rules_later_ones_win_key_by_key(load):
    settings = load(
        FILES
        + """
sink.table.properties: {changelog-producer: none}
tables:
  - {match: "shop.*", bucket: 4, primary.key: [id]}
  - {match: shop.moves, primary.key: [move_id, line], table.properties: {bucket: 2}}
"""
    )
    assert settings.table_properties("shop.a") == {"bucket": "4", "changelog-producer": "none"}
    assert settings.table_properties("shop.moves")["bucket"] == "2"
    assert settings.table_properties("other.a")["bucket"] == "1"
    assert settings.primary_key("shop.a") == ("id",)
    assert settings.primary_key("shop.moves") == ("move_id", "line")


def test_table_rule_with_an_unknown_key_names_its_place(load):
    with pytest.raises(InvalidOptionError, match=r"tables\[0\]\.primary\.keys") as caught:
        load(FILES + "tables: [{match: a.b, primary.keys: [id]}]")
    assert "primary.key" in caught.value.hint


def test_malformed_table_options_are_found_at_load(load):
    with pytest.raises(InvalidOptionError):
        load(FILES, {"sink.table.properties.bucket": "several"})


def test_snapshot_retention_reaches_new_tables(load):
    settings = load(FILES, {"maintenance.snapshot.retain": "3d"})
    assert settings.table_properties("a.b")["snapshot.time-retained"] == "259200000 ms"


def test_interpolation_of_environment_files_and_defaults(load, tmp_path):
    secret = tmp_path / "password"
    secret.write_text("s3cret\n")
    text = MINIMAL + (
        f"source.properties: {{sasl.username: '${{USER_NAME}}', "
        f"sasl.password: '${{file:{secret}}}', client.rack: '${{RACK:-r1}}', note: '$${{x}}'}}\n"
    )
    properties = load(text, environ={"USER_NAME": "ada"}).source.properties
    assert properties == {
        "sasl.username": "ada",
        "sasl.password": "s3cret",
        "client.rack": "r1",
        "note": "${x}",
    }
    assert all(type(value) is str for value in properties.values())


def test_interpolated_numbers_are_parsed(load):
    assert load(FILES + "metrics.port: ${PORT}\n", environ={"PORT": "77"}).metrics.port == 77


def test_unset_variable_and_missing_file_name_the_key(load):
    with pytest.raises(InvalidOptionError, match="export PW") as caught:
        load(MINIMAL + "source.properties: {sasl.password: '${PW}'}\n")
    assert caught.value.context["key"] == "source.properties.sasl.password"
    with pytest.raises(InvalidOptionError, match="cannot be read"):
        load(MINIMAL + "source.properties: {sasl.password: '${file:/nowhere/pw}'}\n")


def test_secrets_appear_nowhere(load, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("hush-hush")
    text = MINIMAL + (
        f"source.properties: {{sasl.password: '${{file:{secret}}}', "
        f"sasl.username: '${{file:{secret}}}', ssl.key.password: hush-hush}}\n"
    )
    path = tmp_path / "lakeward.yaml"
    path.write_text(text)
    resolved = resolve(path, environ={})
    assert "hush-hush" not in str(resolved.lines)
    only_named = load(MINIMAL + "source.properties: {sasl.password: hush-hush}\n")
    for shown in (repr(only_named), str(only_named), str(only_named.redacted())):
        assert "hush-hush" not in shown
    assert "hush-hush" in only_named.to_json()


def test_malformed_secret_is_not_printed(load, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("hush-hush")
    with pytest.raises(InvalidOptionError) as caught:
        load(FILES + f"metrics.port: ${{file:{secret}}}\n")
    assert "hush-hush" not in str(caught.value)


def test_origins_are_told(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text(FILES + "metrics.port: 1\n")
    environ = {"LAKEWARD__LOG__LEVEL": "error"}
    lines = {k: (v, o) for k, v, o in resolve(path, {"log.format": "json"}, environ=environ).lines}
    assert lines["metrics.port"] == ("1", "file")
    assert lines["log.level"] == ("error", "environment")
    assert lines["log.format"] == ("json", "flag")
    assert lines["pipeline.trigger.interval"] == ("30s", "default")


def test_json_and_pickle_round_trip(load):
    settings = load(
        MINIMAL
        + "source.properties: {a: b}\nspark.conf: {x: y}\n"
        + "tables: [{match: a.*, bucket: 2, primary.key: [id, x]}]\n"
    )
    assert Settings.from_json(settings.to_json()) == settings
    assert pickle.loads(pickle.dumps(settings)) == settings


def test_foreign_json_is_refused():
    with pytest.raises(InvalidOptionError, match="malformed"):
        Settings.from_json('{"pipeline": {}}')


def test_missing_file_and_broken_yaml(load, tmp_path):
    with pytest.raises(NotFoundError):
        load_settings(tmp_path / "none.yaml", environ={})
    with pytest.raises(InvalidOptionError, match="line 2"):
        load("source: {\n a: [}")
    with pytest.raises(InvalidOptionError, match="map of sections"):
        load("- a\n")


def test_reference_page_is_current():
    page = settings_page.PAGE.read_text(encoding="utf-8")
    assert with_tables(page, settings_page.tables()) == page


def test_a_table_of_a_page_that_is_not_as_declared_is_found_and_replaced(
    tmp_path, monkeypatch, capsys
):
    page = tmp_path / "page.md"
    page.write_text("# Page\n\n## one\n\nProse | more.\n\n| a |\n|---|\n\n## two\n\n| b |\n")
    monkeypatch.setattr(sys, "argv", ["page", "--check"])
    assert main(page, {"one": "| a |\n|---|\n"}) == 0
    assert main(page, {"one": "| a |\n|---|\n| c |\n"}) == 1
    assert "page.md is out of date" in capsys.readouterr().err
    monkeypatch.setattr(sys, "argv", ["page", "--write"])
    assert main(page, {"one": "| c |\n"}) == 0
    assert page.read_text() == "# Page\n\n## one\n\nProse | more.\n\n| c |\n\n## two\n\n| b |\n"
    with pytest.raises(InternalError):
        with_tables(page.read_text(), {"three": ""})


def test_every_setting_is_in_a_section_and_every_default_parses():
    for row in SETTINGS:
        assert any(row.key.startswith(section + ".") for section in SECTIONS), row.key
        if row.default is not None:
            row.kind.parse(row.default)


def test_dialect_options_carry_producer_facts_and_keys(load):
    settings = load(
        FILES
        + "source.debezium: {decimal.handling.mode: string, time.precision.mode: connect}\n"
        + "tables: [{match: a.b, primary.key: [id]}]\n"
    )
    options = dialect_options(settings, settings.primary_key)
    assert options.decimal_handling_mode == "string"
    assert options.time_precision_mode == "connect"
    assert options.binary_handling_mode == "bytes"
    assert options.primary_keys("a.b") == ("id",)
    assert options.primary_keys("a.c") == ()
