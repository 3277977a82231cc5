# SPDX-License-Identifier: Apache-2.0
"""Loads configurations as the daemon would: JSON in, JSON out, in the product's environment."""

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from ingest.daemon.configuration import resolve
from ingest.daemon.session import spark_properties
from ingest.kubernetes.pods import CORES_VARIABLE, default_parallelism
from storage.errors import LakewardError

SECRETS = "/run/secrets/lakeward"


def loaded(files: list[tuple[str, str]], environ: dict[str, str]) -> Any:
    """The settings that files give in a pod, or a text that says why they give none."""
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        paths = []
        for name, text in files:
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.replace(SECRETS, f"{directory}{SECRETS}"), encoding="utf-8")
            if name.endswith(".yaml"):
                paths.append(path)
        try:
            found = resolve(paths, environ=environ)
            spark = found.settings.spark
            master = spark.master or "local[1]"
            os.environ[CORES_VARIABLE] = environ.get(CORES_VARIABLE, "")
            tasks = spark.parallelism or default_parallelism(spark.master, spark.conf)
            properties = spark_properties(master, spark.conf, tasks, environ)
        except LakewardError as error:
            return f"{error} {error.hint}"
        lines = {key: value for key, value, _ in found.lines}
        source = found.settings.source
        lines["bootstrap"] = getattr(source, "bootstrap_servers", "")
        lines["properties"] = dict(getattr(source, "properties", {}))
        lines["options"] = dict(found.settings.sink.options)
        lines["conf"] = properties
        lines["token"] = found.settings.control.token
        lines["parallelism"] = tasks
        return json.loads(json.dumps(lines, default=str).replace(directory, ""))


if __name__ == "__main__":
    json.dump([loaded(*each) for each in json.load(sys.stdin)], sys.stdout)
