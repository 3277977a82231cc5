# SPDX-License-Identifier: Apache-2.0
"""Runs pods as processes: each in its own process tree, with its own address and nothing inherited.

The command is the image's ENTRYPOINT with the pod's arguments; the environment is the pod's. Of the
file system a pod sees all but what `hidden` names: the driver's own volume is not an executor's.
"""

import itertools
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

from tests.image.tools import debian
from tests.kubernetes.api_server import Object, Objects

ROOT = Path(__file__).resolve().parents[2]


class Kubelet:
    """Starts what `Objects` tells it of; `objects` must be set before the first pod.

    Args:
        directory: for logs and scratch volumes.
        hosts: lines of the pods' /etc/hosts: names of services.
        hidden: directories that no pod sees.
    """

    objects: Objects

    def __init__(self, directory: Path, *, hosts: str, hidden: list[Path]) -> None:
        self._directory = directory
        self._hosts = hosts
        self._hidden = hidden
        self._addresses = (f"127.0.77.{number}" for number in itertools.count(1))
        self._bwrap = debian("bwrap", "bubblewrap")
        self._tini = debian("tini", "tini")
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.pods: dict[str, Object] = {}

    def on_pod(self, pod: Object, created: bool) -> None:
        """Start the process of a new pod; end that of a deleted one."""
        name = pod["metadata"]["name"]
        if created:
            self.pods[name] = pod
            threading.Thread(target=self._run, args=(pod,), daemon=True).start()
        elif name in self.processes:
            # to the sandbox's own process, which takes all in it along
            self.processes[name].kill()

    def kill(self, name: str) -> None:
        """SIGKILL of all processes of a pod, as when its node is lost or its memory is used up."""
        self.processes[name].kill()

    def drain(self, name: str) -> int:
        """Run the pod's `preStop` hook inside it, as before its end; the hook's exit code."""
        hook = self.pods[name]["spec"]["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
        assert [Path(word).name for word in hook] == ["lakeward-decommission"]
        first = Path(f"/proc/{self.processes[name].pid}/task/{self.processes[name].pid}/children")
        inside = ["nsenter", "--target", first.read_text().split()[0], "--pid", "--mount"]
        module = [sys.executable, "-m", "ingest.kubernetes.decommission"]
        return subprocess.run([*inside, *module], cwd=ROOT, timeout=120, check=False).returncode

    def running(self) -> list[str]:
        return [name for name, process in self.processes.items() if process.poll() is None]

    def log(self, name: str) -> str:
        return (self._directory / f"{name}.log").read_text(errors="replace")

    def stop(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
            process.wait(30)

    def _run(self, pod: Object) -> None:
        name, address = pod["metadata"]["name"], next(self._addresses)
        container = pod["spec"]["containers"][0]
        (self._directory / f"{name}.json").write_text(json.dumps(pod, indent=1))
        environ = self._environ(pod, container, address)
        hosts = self._directory / f"{name}.hosts"
        hosts.write_text(f"127.0.0.1 localhost\n{address} {name}\n{self._hosts}")
        command = [*self._sandbox(name, hosts), self._tini, "--", sys.executable]
        command += ["-m", "ingest.kubernetes.entrypoint", *container["args"]]
        with (self._directory / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                command, env=environ, stdout=log, stderr=log, cwd="/", start_new_session=True
            )
        self.processes[name] = process
        self._status(name, "Running", {"running": {}}, address)
        code = process.wait()
        code = code if code >= 0 else 128 - code
        phase = "Succeeded" if code == 0 else "Failed"
        self._status(name, phase, {"terminated": {"exitCode": code}}, address)

    def _sandbox(self, name: str, hosts: Path) -> list[str]:
        command = [self._bwrap, "--dev-bind", "/", "/", "--unshare-pid", "--as-pid-1"]
        command += ["--proc", "/proc", "--die-with-parent", "--unshare-uts", "--hostname", name]
        command += ["--ro-bind", str(hosts), "/etc/hosts"]
        for path in self._hidden:
            command += ["--tmpfs", str(path)]
        return command

    def _environ(self, pod: Object, container: Object, address: str) -> dict[str, str]:
        name = pod["metadata"]["name"]
        fields = {"status.podIP": address, "metadata.name": name}
        scratch = {
            mount["mountPath"]: self._directory / f"{name}-{mount['name']}"
            for mount in container.get("volumeMounts", [])
        }
        # what the image sets; the packages are in its site-packages
        environ = {"PATH": os.environ["PATH"], "HOME": "/tmp", "PYTHONPATH": str(ROOT)}
        for entry in container.get("env", []):
            value = entry.get("value", "")
            if "valueFrom" in entry:
                value = fields[entry["valueFrom"]["fieldRef"]["fieldPath"]]
            for path, real in scratch.items():
                if value == path:
                    real.mkdir(exist_ok=True)
                    value = str(real)
            environ[entry["name"]] = value
        return environ

    def _status(self, name: str, phase: str, state: Object, address: str) -> None:
        def change(pod: Object) -> None:
            about = pod["spec"]["containers"][0]
            status = {"name": about["name"], "ready": phase == "Running", "restartCount": 0}
            status |= {"image": about["image"], "imageID": about["image"], "state": state}
            pod["status"] = {"phase": phase, "podIP": address, "containerStatuses": [status]}

        self.objects.change("pods", name, change)
