# SPDX-License-Identifier: Apache-2.0
"""What Spark imports for every Python source is light, and stands for the source."""

import pathlib
import subprocess
import sys

from tests.table_kit import make_table, write

AUTOMATIC = pathlib.Path(__file__).parents[4] / "changelog/spark_source/automatic"

CHECK = """
import pickle, sys
from pyspark_lakeward import DefaultSource
assert DefaultSource.name() == "lakeward"
ours = [name for name in sys.modules if name.startswith(("storage", "changelog", "ingest"))]
assert not ours, ours
source = DefaultSource({"path": sys.argv[1]})
schema = source.schema()
assert schema.names == ["k", "v"]
reader = pickle.loads(pickle.dumps(source)).reader(schema)
print([batch.to_pylist() for part in reader.partitions() for batch in reader.read(part)])
"""


def test_nothing_is_imported_before_it_is_used(tmp_path):
    table = make_table(tmp_path)
    write(table, 1, [("+I", 1, "a")])
    root = pathlib.Path(__file__).parents[4]
    done = subprocess.run(
        [sys.executable, "-c", CHECK, table.layout.root],
        env={"PYTHONPATH": f"{root}:{AUTOMATIC}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[[{'k': 1, 'v': 'a'}]]"
