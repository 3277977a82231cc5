# SPDX-License-Identifier: Apache-2.0
"""`lakeward catalog serve` as a process: what it prints, refuses, serves, and how it ends."""

import contextlib
import http.client
import json
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time

import pytest

from ingest.cli import main as command_line
from tests.free_ports import free_port

TOKENS = "tokens: [{name: all, token_file: token, read: ['*'], write: ['*']}]"
SECRET = "a-secret-of-the-test"


def run(capsys, *arguments):
    """Exit code and standard error of a command that does not start."""
    try:
        code = command_line.main(["catalog", "serve", *arguments])
    except SystemExit as ended:
        code = int(ended.code or 0)
    return code, capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "specify one of --warehouse, --catalog and -c"),
        (["--warehouse", "w", "--catalog", "c.yaml"], "specify one of"),
        (["--warehouse", "w", "--tls-cert", "c.pem"], "both --tls-cert and --tls-key"),
        (["--warehouse", "w", "--tokens", "t", "--without-tokens"], "only one of"),
        (["--warehouse", "w", "--port", "0"], "greater than 0"),
        (["--warehouse", "w", "--tokes", "t"], "--tokens"),
    ],
)
def test_wrong_command_lines(capsys, arguments, said):
    code, text = run(capsys, *arguments)
    assert code == 2
    assert said in text


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.com"])
def test_without_tokens_only_this_machine_is_served(tmp_path, capsys, host):
    code, text = run(capsys, "--warehouse", str(tmp_path), "--host", host)
    assert code == 78
    assert "only on localhost" in text
    assert "--without-tokens" in text


def test_a_missing_package_is_named(tmp_path):
    code = (
        "import sys; sys.modules['starlette'] = None; sys.modules['uvicorn'] = None\n"
        "from ingest.cli.main import main\n"
        f"main(['catalog', 'serve', '--warehouse', {str(tmp_path)!r}])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "a package that the catalog service needs is not installed" in done.stderr
    assert 'pip install "lakeward[catalog-service]"' in done.stderr


@contextlib.contextmanager
def serving(tmp_path, *arguments):
    """Port and process of a service, and the lines of its log so far."""
    port = free_port()
    command = [sys.executable, "-m", "ingest.cli.main", "catalog", "serve", "--port", str(port)]
    process = subprocess.Popen(
        [*command, "--warehouse", str(tmp_path / "w"), *arguments],
        stderr=subprocess.PIPE,
        text=True,
    )
    lines, ready = [], threading.Event()

    def collect():
        for line in process.stderr:
            lines.append(json.loads(line))
            if lines[-1].get("event") == "catalog_serving":
                ready.set()

    reader = threading.Thread(target=collect, daemon=True)
    reader.start()
    try:
        assert ready.wait(60), lines
        yield port, process, lines
    finally:
        process.kill()
        process.wait(10)
        reader.join(10)
        process.stderr.close()


def get(connection, path):
    connection.request("GET", path, headers={"Authorization": f"Bearer {SECRET}"})
    answer = connection.getresponse()
    return answer.status, answer.read()


def test_tls_tokens_and_the_end(tmp_path):
    request = "req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost"
    names = ["-keyout", str(tmp_path / "key.pem"), "-out", str(tmp_path / "cert.pem")]
    names += ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(["openssl", *request.split(), *names], check=True, capture_output=True)
    (tmp_path / "token").write_text(SECRET)
    (tmp_path / "tokens.yaml").write_text(TOKENS)
    tls = ["--tls-cert", str(tmp_path / "cert.pem"), "--tls-key", str(tmp_path / "key.pem")]
    with serving(tmp_path, "--tokens", str(tmp_path / "tokens.yaml"), *tls) as (port, process, log):
        context = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))
        connection = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=30)
        assert get(connection, "/paimon/v1/lakeward/databases")[0] == 200
        connection.request("GET", "/paimon/v1/config")
        answer = connection.getresponse()
        assert (answer.status, answer.getheader("server")) == (401, None)
        answer.read()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        connection.close()
    events = [line.get("event", line) for line in log]
    assert events == ["catalog_serving", "catalog_request", "catalog_request", "catalog_stopped"]
    assert log[0]["address"] == f"https://127.0.0.1:{port}"
    assert [line.get("principal") for line in log[1:3]] == ["all", None]
    assert SECRET not in json.dumps(log)


def test_requests_under_way_are_finished(tmp_path):
    with serving(tmp_path) as (port, process, _):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.putrequest("POST", "/paimon/v1/lakeward/databases")
        body = b'{"name": "db"}'
        connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body[:5])
        time.sleep(0.3)
        process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        connection.send(body[5:])
        assert connection.getresponse().status == 200
        assert process.wait(30) == 0
        connection.close()
    assert (tmp_path / "w" / "db.db").is_dir()


def test_a_port_in_use_and_a_bad_certificate_are_named(tmp_path):
    command = [sys.executable, "-m", "ingest.cli.main", "catalog", "serve"]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        command += ["--warehouse", str(tmp_path), "--port", str(taken.getsockname()[1])]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert "the address cannot be bound" in done.stderr
    (tmp_path / "bad.pem").write_text("nothing")
    tls = ["--tls-cert", str(tmp_path / "bad.pem"), "--tls-key", str(tmp_path / "bad.pem")]
    done = subprocess.run([*command, *tls], capture_output=True, text=True, timeout=60)
    assert "certificate or key cannot be used" in done.stderr
