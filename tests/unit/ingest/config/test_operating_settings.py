# SPDX-License-Identifier: Apache-2.0
"""`control.*` and `alerts.*`: what they may be, and that no text shows what is secret in them."""

import json
import urllib.request

import pytest

from ingest.config.settings import Settings
from ingest.daemon.configuration import resolve
from ingest.daemon.requests.request_handler import changed_sections, fixed_changes
from ingest.observe.observe import Observer
from ingest.state.request_files import RequestFiles
from storage.clock import ManualClock
from storage.errors import InvalidOptionError
from storage.io.local import LocalFileIO

TOKEN = "a-token-of-some-length"
HOOK = "https://hooks.example.com:8443/services/T0/B0/s3cret"
CONTROL = f"control: {{token: {TOKEN}}}\n"
ALERTS = f"alerts: {{webhook: {{urls: ['{HOOK}'], headers: {{Authorization: s3cret}}}}}}\n"


@pytest.fixture
def given(tmp_path):
    def read(text, **environ):
        path = tmp_path / "shop.yaml"
        path.write_text(
            f"source: {{type: files, path: {tmp_path}}}\nsink: {{warehouse: {tmp_path}/lake}}\n"
            f"pipeline: {{name: shop}}\nmetrics: {{port: 0}}\n{text}"
        )
        return resolve(path, environ=environ)

    return read


def test_without_them_control_and_webhooks_are_off(given):
    settings = given("").settings
    assert settings.control.token is None
    assert settings.alerts.urls == ()
    assert "stream_fatal" in settings.alerts.events


def test_a_token_may_be_a_file_or_a_variable(given, tmp_path):
    (tmp_path / "token").write_text(TOKEN + "\n")
    text = f"control: {{token: '${{file:{tmp_path}/token}}'}}\n"
    assert given(text).settings.control.token == TOKEN
    settings = given("", LAKEWARD__CONTROL__TOKEN=TOKEN).settings
    assert settings.control.token == TOKEN


def test_secrets_are_in_no_text(given):
    found = given(CONTROL + ALERTS)
    texts = [repr(found.settings), str(found.lines), json.dumps(found.settings.redacted())]
    texts += [repr(found.settings.control), repr(found.settings.alerts), found.settings.to_json()]
    for text in texts:
        assert TOKEN not in text
        assert "s3cret" not in text
    assert ("alerts.webhook.urls", "https://hooks.example.com:8443/…", "file") in found.lines


def test_tasks_do_not_get_them(given):
    settings = given(CONTROL + ALERTS).settings
    again = Settings.from_json(settings.to_json())
    assert again.control.token is None
    assert again.alerts.urls == ()


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("control: {token: short}", "at least 16"),
        ("control: {token: 'with blanks in the middle of it'}", "without blanks"),
        ("alerts: {webhook: {urls: ['ftp://s3cret']}}", "http://"),
        ("alerts: {webhook: {urls: ['https:///s3cret']}}", "http://"),
        ("alerts: {events: [table_parked, tea]}", "not `tea`"),
        ("alerts: {quarantine: {records: 0}}", "an integer from 1"),
    ],
)
def test_what_they_cannot_be_is_said_without_the_value(given, text, wanted):
    with pytest.raises(InvalidOptionError) as caught:
        given(text)
    assert wanted in caught.value.detail
    assert "s3cret" not in str(caught.value)
    assert "short" not in str(caught.value)


def test_a_reload_takes_them_and_the_endpoint_obeys_at_once(given, tmp_path):
    old, new = given("").settings, given(CONTROL + ALERTS).settings
    assert fixed_changes(old, new, {}) == []
    assert changed_sections(old, new) == ["control", "alerts"]
    observer = Observer(old, ManualClock(), lambda: [("pipeline.name", "shop", "file")])
    files = RequestFiles(LocalFileIO(durable=False), str(tmp_path / "lake"), "shop")
    observer.let_control(files, drain=lambda: None, wake=lambda: None)

    def status(url):
        with urllib.request.urlopen(f"{url}/api/status") as answer:
            return json.loads(answer.read())

    with observer:
        url = observer._server.url
        assert (status(url)["control"]["enabled"], status(url)["alerts"]["enabled"]) == (
            False,
            False,
        )
        observer.use_settings(new)
        assert (status(url)["control"]["enabled"], status(url)["alerts"]["enabled"]) == (True, True)
        with urllib.request.urlopen(f"{url}/config") as answer:
            assert json.loads(answer.read())["settings"][0]["from"] == "file"
