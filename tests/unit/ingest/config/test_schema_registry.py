# SPDX-License-Identifier: Apache-2.0
"""The registry client against a stub that speaks the documented API."""

import base64
import json
import pickle
import ssl
import subprocess
import uuid

import pytest

from ingest.config.source_settings import SchemaRegistrySettings
from ingest.decode.registry import JsonGetter, SchemaRegistry, UnknownSchemaError
from ingest.errors import AccessDeniedError, ExitCode, exit_code_of
from storage.clock import ManualClock
from storage.errors import InvalidOptionError, InvalidRequestError, RetryableError
from tests.free_ports import free_port
from tests.unit.ingest.stub_registry import stub_registry


@pytest.fixture
def stub():
    with stub_registry() as running:
        yield running


def client(*urls, **more):
    settings = SchemaRegistrySettings(urls=urls, timeout_s=2, **more)
    return SchemaRegistry(settings, ManualClock())


def test_a_schema_is_asked_for_once(stub):
    stub.add(7, "string")
    registry = client(stub.url)
    assert registry.schema(7) is registry.schema(7)
    assert registry.schema(7).text == "string"
    assert registry.schema(7).kind == "AVRO"
    assert [path for path, _ in stub.requests] == ["/schemas/ids/7"]


def test_a_guid_has_its_own_address(stub):
    guid = uuid.UUID(int=99)
    stub.answers[f"/schemas/guids/{guid}"] = {"schema": "{}", "schemaType": "JSON"}
    assert client(stub.url).schema(guid).kind == "JSON"


def test_a_path_before_the_api_is_kept():
    with stub_registry("/apis/ccompat/v7") as stub:
        stub.answers[f"/schemas/ids/{1 << 40}"] = {"schema": "long"}
        assert client(stub.url + "/").schema(1 << 40).text == "long"


def test_references_come_resolved_and_are_shared(stub):
    base = stub.add_version("a/b c", 2, "int")
    middle = stub.add_version("middle", 1, "long", references=[base])
    stub.add(1, "string", references=[middle, base])
    schema = client(stub.url).schema(1)
    assert [(one.text, len(one.references)) for one in schema.references] == [
        ('"long"', 1),
        ('"int"', 0),
    ]
    assert schema.references[0].references[0] is schema.references[1]
    assert len(stub.requests) == 3


def test_references_in_a_circle_end(stub):
    reference = {"name": "x", "subject": "loop", "version": 1}
    stub.add_version("loop", 1, "int", references=[reference])
    stub.add(1, "string", references=[reference])
    with pytest.raises(UnknownSchemaError, match="circle"):
        client(stub.url).schema(1)


def test_an_unknown_id_is_bad_data_after_a_short_wait(stub):
    clock = ManualClock()
    registry = SchemaRegistry(SchemaRegistrySettings(urls=(stub.url,)), clock)
    with pytest.raises(UnknownSchemaError, match="id=`5`") as caught:
        registry.schema(5)
    assert exit_code_of(caught.value) == ExitCode.DATA
    asked = len(stub.requests)
    with pytest.raises(UnknownSchemaError):
        registry.schema(5)
    assert len(stub.requests) == asked == 3
    stub.add(5, "late")
    clock.advance(61_000)
    assert registry.schema(5).text == "late"


def test_many_unknown_ids_do_not_each_cost_a_wait(stub):
    clock = ManualClock()
    registry = SchemaRegistry(SchemaRegistrySettings(urls=(stub.url,)), clock)
    start = clock.monotonic_s()
    for schema_id in range(20):
        with pytest.raises(UnknownSchemaError):
            registry.schema(schema_id)
    assert clock.monotonic_s() - start < 3
    assert len(stub.requests) == 22


def test_a_registry_that_recovers_is_waited_for(stub):
    stub.add(1, "int")
    stub.failures = [(503, b"busy"), (429, {}), (500, {"error_code": 50001, "message": "store"})]
    assert client(stub.url).schema(1).text == "int"


def test_a_registry_that_stays_away_is_a_passing_failure():
    url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(RetryableError, match="does not answer") as caught:
        client(url, username="me", password="hidden-word").schema(1)
    assert "refused" in str(caught.value)
    assert "hidden-word" not in str(caught.value)
    assert exit_code_of(caught.value) == ExitCode.UNAVAILABLE
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_the_next_server_answers_for_a_dead_one(stub):
    stub.add(1, "int")
    dead = f"http://127.0.0.1:{free_port()}"
    assert client(dead, stub.url).schema(1).text == "int"


def test_nothing_is_unknown_while_one_server_is_away(stub):
    dead = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(RetryableError):
        client(dead, stub.url, retry_for_s=1).schema(1)


def test_basic_and_bearer_authentication(stub):
    stub.add(1, "int")
    client(stub.url, username="key", password="söcret").schema(1)
    client(stub.url.replace("//", "//us%40er:pa%3Ass@"), retry_for_s=1).schema(1)
    client(stub.url, token="abc").schema(1)
    sent = [headers["Authorization"] for _, headers in stub.requests]
    assert base64.b64decode(sent[0].removeprefix("Basic ")).decode() == "key:söcret"
    assert base64.b64decode(sent[1].removeprefix("Basic ")) == b"us@er:pa:ss"
    assert sent[2] == "Bearer abc"


@pytest.mark.parametrize("status", [401, 403])
def test_refused_credentials_are_for_a_person(stub, status):
    stub.failures = [(status, {"error_code": status * 100, "message": "no"})]
    with pytest.raises(AccessDeniedError) as caught:
        client(stub.url, token="hidden-word").schema(1)
    assert "hidden-word" not in str(caught.value)


@pytest.mark.parametrize(
    "answer",
    [
        (404, {"error_code": 404}),
        (404, b"<html>"),
        (200, b"<html>"),
        (200, {}),
        (302, {}),
        (200, []),
    ],
)
def test_a_wrong_address_blames_no_record(stub, answer):
    stub.failures = [answer]
    with pytest.raises(InvalidRequestError, match="no schema registry"):
        client(stub.url).schema(1)


def test_settings_show_no_secret():
    settings = SchemaRegistrySettings(
        urls=("https://me:one@host/x",), key_password="two", certificate_file="c"
    )
    assert settings.urls == ("https://host/x",)
    assert (settings.username, settings.password) == ("me", "one")
    assert "one" not in repr(settings).replace("None", "")
    assert "two" not in repr(settings)


@pytest.mark.parametrize(
    "values",
    [
        {"urls": ()},
        {"urls": ("host:8081",)},
        {"urls": ("ftp://host",)},
        {"urls": ("http://host:port",)},
        {"urls": ("http://host?x=1",)},
        {"urls": ("http://h",), "token": "t", "username": "u"},
        {"urls": ("http://h",), "key_file": "k"},
        {"urls": ("http://h",), "timeout_s": 0},
        {"urls": ("http://a:b@h", "http://c:d@i")},
    ],
)
def test_settings_that_contradict_themselves(values):
    with pytest.raises(InvalidOptionError):
        SchemaRegistrySettings(**values)


def test_certificates_are_read_at_once(tmp_path):
    absent = str(tmp_path / "absent.pem")
    for files in ({"ca_file": absent}, {"certificate_file": absent}):
        with pytest.raises(InvalidOptionError, match="absent"):
            JsonGetter(SchemaRegistrySettings(urls=("https://host",), **files))


def test_tls_trusts_only_the_given_authority(tmp_path):
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    request = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=x"]
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate]
    subprocess.run(["openssl", *request, *names], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with stub_registry(tls=context) as stub:
        stub.add(1, json.dumps("int"))
        assert client(stub.url, ca_file=str(certificate)).schema(1).text == '"int"'
        with pytest.raises(RetryableError, match="certificate verify failed"):
            client(stub.url, retry_for_s=0).schema(1)
