# SPDX-License-Identifier: Apache-2.0
"""`lakeward doctor`: all that helps is in the archive, and nothing that must not leave."""

import json
import tarfile

import pytest

from ingest.cli.main import main
from ingest.daemon.configuration import load_settings
from ingest.tools import support_bundle
from ingest.tools.support_bundle import secret_texts
from storage.io.local import LocalFileIO
from tests.table_kit import make_table, write

CONFIG = """
pipeline: {{ name: shop, checkpoint: {root}/checkpoint }}
source:
  type: kafka
  bootstrap.servers: 127.0.0.1:1
  topics.pattern: 'shop\\..*'
  format: debezium-avro
  properties: {{ sasl.password: kafka-secret-1, sasl.username: reader }}
  schema.registry: {{ url: 'http://127.0.0.1:1', basic.auth: 'reg-user:reg-secret-2' }}
sink:
  type: paimon
  warehouse: {root}/warehouse
tables:
  - match: db.t
    mask: {{ email: "sha256('salt-secret-4')" }}
control: {{ token: token-secret-5-long-enough }}
alerts:
  webhook.urls: ['https://hooks.example/T0/hook-secret-6']
  webhook.headers: {{ X-Key: header-secret-7 }}
metrics: {{ port: 1 }}
"""


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "shop.yaml"
    path.write_text(CONFIG.format(root=tmp_path), encoding="utf-8")
    return path


@pytest.fixture
def bundle(tmp_path, config, capsys):
    """Its files by name, and what was printed."""
    table = make_table(tmp_path / "warehouse")
    write(table, 1, [("+I", 1, "a row of somebody")])
    log = tmp_path / "daemon.log"
    log.write_text("asking with kafka-secret-1 at http://reg-user:reg-secret-2@reg:8081\n")
    target = tmp_path / "bundle.tar.gz"
    arguments = ["doctor", "-c", str(config), "-o", str(target), "--offline", "--json"]
    arguments += ["--table", "db.t", "--table", "db.missing", "--log", str(log)]
    assert main(arguments) == 0
    with tarfile.open(target) as archive:
        files = {
            member.name.removeprefix("bundle/"): archive.extractfile(member).read().decode()
            for member in archive.getmembers()
        }
    return files, json.loads(capsys.readouterr().out)


def test_no_secret_and_no_row_leaves(bundle):
    files, _ = bundle
    for name, text in files.items():
        for hidden in ("secret-", "somebody"):
            assert hidden not in text, name
    assert "http://********@reg:8081" in files["logs/0-daemon.log"]


def test_all_that_helps_is_there(bundle):
    files, printed = bundle
    table = json.loads(files["tables/db.t.json"])
    assert [one["id"] for one in table["newest_snapshots"]] == [1]
    assert table["files_by_bucket_and_level"][0]["record_count_sum"] == 1
    assert json.loads(files["versions.json"])["lakeward"]
    assert "source.bootstrap.servers = 127.0.0.1:1" in files["settings.txt"]
    assert "reader" in files["settings.txt"]
    assert json.loads(files["machine.json"])["disks"]["warehouse"]["free"] > 0
    assert set(printed["parts"]) >= {"status.json", "stream.json", "checks.json"}


def test_what_cannot_be_had_is_told_and_stops_nothing(bundle):
    files, printed = bundle
    assert set(printed["missing"]) >= {"tables/db.missing.json", "daemon/metrics.txt"}
    assert "tables/db.missing.json: missing" in files["README.txt"]
    assert "Traceback" in files["daemon/metrics.txt.error.txt"]


def test_state_that_the_daemon_removes_meanwhile_does_not_cost_the_rest(tmp_path):
    class Busy(LocalFileIO):
        def read_bytes(self, path):
            if path.endswith("record-1"):
                raise FileNotFoundError(path)
            return super().read_bytes(path)

    for number in (1, 2):
        (tmp_path / f"record-{number}").write_text(f'{{"number": {number}}}')
    assert dict(support_bundle._files(Busy(durable=False), str(tmp_path))) == {
        "record-1": "deleted meanwhile",
        "record-2": {"number": 2},
    }


def test_a_bundle_is_not_overwritten(tmp_path, config, capsys):
    target = tmp_path / "there.tar.gz"
    target.write_bytes(b"mine")
    assert main(["doctor", "-c", str(config), "-o", str(target)]) == 78
    assert target.read_bytes() == b"mine"


def test_every_secret_setting_is_known(config):
    found = secret_texts(load_settings(config))
    expected = {"kafka-secret-1", "reg-secret-2", "salt-secret-4"}
    expected |= {
        "token-secret-5-long-enough",
        "https://hooks.example/T0/hook-secret-6",
        "header-secret-7",
    }
    assert expected <= found
    assert "reader" not in found


def test_a_pipeline_without_secrets_has_none(tmp_path):
    path = tmp_path / "plain.yaml"
    path.write_text(
        "source: { type: files, path: events, format: debezium-json }\n"
        "sink: { type: paimon, warehouse: lake }\npipeline: { name: plain }\n",
        encoding="utf-8",
    )
    assert secret_texts(load_settings(path)) == frozenset()
