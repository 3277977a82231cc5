# SPDX-License-Identifier: Apache-2.0
"""The wheel runs under the constraints of the pod."""

import json
import signal
import subprocess

import pytest
import yaml

from tests.e2e.daemon_process import eventually, newest_snapshot
from tests.e2e.shop_stream import TABLES, assert_tables_equal_model
from tests.image.rootfs import STATE, Container, Image
from tests.soak.soak import Load

LOOK_AROUND = """
import json, os, pathlib, pwd, socket
def writable(place):
    try:
        path = pathlib.Path(place, "x"); path.write_text(""); path.unlink(); return True
    except OSError:
        return False
places = ["/", "/opt/app", "/etc", "/usr", "/var/lib", "/home", "/tmp", os.getcwd()]
caps = [l.split()[1] for l in open("/proc/self/status") if l.startswith(("CapEff", "NoNewPrivs"))]
print(json.dumps({
    "user": pwd.getpwuid(os.getuid())[:4], "home": os.path.expanduser("~"), "cwd": os.getcwd(),
    "writable": [place for place in places if writable(place)], "capabilities": caps,
    "addresses": socket.if_nameindex(), "first": open("/proc/1/comm").read().strip(),
}))
"""


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    return Image(tmp_path_factory.mktemp("image"))


@pytest.fixture
def state(tmp_path):
    (tmp_path / "state").mkdir()
    return tmp_path / "state"


@pytest.fixture
def config(state):
    """A pipeline of files below the state volume; inside, its path is the second."""
    raw = {
        "pipeline": {
            "name": "shop",
            "checkpoint": f"{STATE}/checkpoint",
            "trigger": {"interval": "500ms"},
        },
        "source": {"type": "files", "path": f"{STATE}/events", "topics.pattern": ".*"},
        "sink": {"warehouse": f"{STATE}/warehouse"},
        "log": {"format": "json"},
    }
    (state / "lakeward.yaml").write_text(yaml.safe_dump(raw))
    return f"{STATE}/lakeward.yaml"


def run(image, state, *arguments, entrypoint=None):
    command = image.command(state, arguments, entrypoint=entrypoint)
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_who_and_where_it_is(image, state):
    tini = ["/usr/bin/tini", "--", "python"]
    done = run(image, state, "-c", LOOK_AROUND, entrypoint=tini)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["user"] == ["lakeward", "x", 10001, 10001]
    assert seen["home"] == "/tmp"
    assert seen["writable"] == ["/tmp", STATE]
    assert set(seen["capabilities"]) == {"0000000000000000", "1"}
    assert [name for _, name in seen["addresses"]] == ["lo"]
    assert seen["first"] == "tini"


def test_the_entrypoint_has_both_roles(image, state, config):
    executor = run(image, state, "executor")
    assert executor.returncode == 78
    assert "SPARK_DRIVER_URL" in executor.stderr
    (state / "events").mkdir()
    valid = run(image, state, "validate", "-c", config, "--json")
    assert valid.returncode == 0, valid.stdout + valid.stderr
    host = json.loads(valid.stdout)["settings"]["metrics.host"]
    assert host == {"value": "0.0.0.0", "from": "environment"}


@pytest.mark.full
@pytest.mark.spark
def test_it_works_off_a_backlog(image, state, config):
    load = Load(state / "events", seed=3, per_file=0)
    load.begin(300)
    load.change(1_000)
    done = run(image, state, "run", "-c", config, "--once")
    assert done.returncode == 0, done.stderr[-4000:]
    assert_tables_equal_model(state / "warehouse", load.shop)


@pytest.mark.full
@pytest.mark.spark
def test_sigterm_ends_it_after_the_batch(image, state, config):
    load = Load(state / "events", seed=4, per_file=0)
    load.begin(300)
    warehouse = state / "warehouse"
    with Container(image, state, ["run", "-c", config]) as container:

        def until(check, what):
            eventually(
                lambda: container.process.poll() is not None or check(), timeout=120, what=what
            )
            assert container.process.poll() is None, container.log[-4000:]

        until(lambda: all(newest_snapshot(warehouse, f"shop.{t}") for t in TABLES), "a commit")
        files = set(warehouse.glob("shop.db/*/bucket-*/*"))
        load.change(20_000)
        until(lambda: set(warehouse.glob("shop.db/*/bucket-*/*")) - files, "files of a batch")
        container.signal(signal.SIGTERM)
        assert container.wait(120) == 0, container.log[-4000:]
    assert '"event": "drain"' in container.log
    # the batch that ran is recorded: nothing will be done again
    logs = [
        max(int(p.name) for p in state.glob(f"checkpoint/**/{kind}/[0-9]*"))
        for kind in ("offsets", "commits")
    ]
    assert logs[0] == logs[1]
    assert_tables_equal_model(warehouse, load.shop)
