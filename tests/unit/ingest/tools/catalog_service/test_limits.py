# SPDX-License-Identifier: Apache-2.0
"""Requests are bounded in size, time and number; what is logged and counted of them."""

import concurrent.futures
import logging
import threading
import time

import pytest

from ingest.tools.catalog_service.service import Limits
from storage.errors import StorageUnavailableError
from tests.catalog_service import TOKEN, catalog_service
from tests.unit.ingest.tools.catalog_service.asking import Paimon, ask


@pytest.fixture
def served(tmp_path):
    limits = Limits(body_bytes=1000, seconds=0.5, threads=2, waiting=1)
    with catalog_service(str(tmp_path / "w"), limits=limits) as found:
        yield found


def test_a_body_that_is_too_large(served):
    path = "/paimon/v1/lakeward/databases"
    assert ask(served, "POST", path, b"x" * 1001).status == 413

    def chunks():
        for _ in range(10):
            time.sleep(0.02)  # the response is not sent before the body has ended
            yield b"y" * 200

    reply = ask(served, "POST", path, chunks())
    assert reply.status == 413
    assert served.service.catalog.list_databases() == []


@pytest.mark.parametrize("body", [b"{", b"[1]", b"\xff", b'"text"', b"null", b"{}"])
def test_a_body_that_is_no_object(served, body):
    for path in ("databases", "tables/rename", "databases/db/tables/t/commit"):
        assert Paimon(served)("POST", f"/{path}", body).status == 400, path


def test_a_request_that_takes_too_long(served, monkeypatch):
    ended = threading.Event()
    monkeypatch.setattr(served.service.catalog, "list_databases", lambda: ended.wait(10) and [])
    try:
        status, _, _ = Paimon(served).refusal("GET", "/databases")
        assert status == 504
    finally:
        ended.set()


def test_more_requests_than_wait_are_sent_away(served, monkeypatch):
    ended = threading.Event()
    monkeypatch.setattr(served.service.catalog, "list_databases", lambda: ended.wait(10) and [])
    try:
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            asked = [pool.submit(Paimon(served), "GET", "/databases") for _ in range(6)]
            found = [one.result() for one in asked]
    finally:
        ended.set()
    statuses = sorted(one.status for one in found)
    assert statuses == [503, 503, 503, 504, 504, 504]
    assert {one.headers.get("retry-after") for one in found if one.status == 503} == {"1"}
    assert ask(served, "GET", "/healthz").status == 200


def test_a_store_that_is_away_and_an_error_of_ours(served, monkeypatch, caplog):
    def away():
        raise StorageUnavailableError("the store is away")

    monkeypatch.setattr(served.service.catalog, "list_databases", away)
    assert Paimon(served).refusal("GET", "/databases")[0] == 503
    monkeypatch.setattr(served.service.catalog, "list_databases", lambda: 1 / 0)
    reply = Paimon(served)("GET", "/databases")
    assert reply.status == 500
    assert b"division" not in reply.body
    assert "ZeroDivisionError" in caplog.text


def logged(caplog, count):
    """Lines of requests; the last may be written after its answer has arrived."""
    for _ in range(200):
        lines = [one for one in caplog.records if getattr(one, "event", "") == "catalog_request"]
        if len(lines) >= count:
            return lines
        time.sleep(0.01)
    raise AssertionError(caplog.text)


def test_requests_are_logged_without_tokens(served, caplog):
    caplog.set_level(logging.INFO)
    Paimon(served).post("/databases", {"name": "db"})
    Paimon(served, "a-wrong-token")("GET", "/databases/db?x=secret")
    first, second = lines = logged(caplog, 2)
    assert (first.method, first.path) == ("POST", "/paimon/v1/lakeward/databases")
    assert (first.status, first.principal, first.bytes) == (200, "anonymous", 0)
    assert first.ms > 0
    assert (second.status, second.principal) == (401, None)
    assert second.bytes > 0
    for secret in (TOKEN, "a-wrong-token", "secret"):
        assert secret not in "".join(str(vars(line)) for line in lines)


def test_metrics_count_by_route(served, caplog):
    caplog.set_level(logging.INFO)
    for number in range(3):
        Paimon(served)("GET", f"/databases/d{number}")
    ask(served, "GET", "/nothing/here")
    ask(served, "TRACE", "/paimon/v1/config")
    logged(caplog, 5)
    text = ask(served, "GET", "/metrics").body.decode()
    route = 'route="/paimon/v1/lakeward/databases/{database}"'
    name = "lakeward_catalog_requests"
    assert f'{name}_total{{method="GET",{route},status="404"}} 3.0' in text
    assert f'{name}_total{{method="GET",route="other",status="404"}} 1.0' in text
    assert f'{name}_total{{method="other",route="/paimon/v1/config",status="405"}} 1.0' in text
    assert f'lakeward_catalog_request_duration_seconds_count{{method="GET",{route}}} 3.0' in text
    assert f"{name}_in_flight 1.0" in text
