# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.bench`: measure, print ratios, write JSON. What `make bench` runs.

Ends with 0 whether or not goals are met: figures are for people, and a busy machine must not fail a
build. Only a wrong result or a part that cannot run is an error.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.bench import (
    aggregators,
    floor,
    ingest,
    lookup,
    many_tables,
    merge,
    microbatch,
    pieces,
    planning,
    spark_scan,
    sql_queries,
    storage,
    transforms,
)
from tests.bench.machine import facts
from tests.bench.measure import Figure
from tests.bench.report import print_part, write_json

PARTS: dict[str, Callable[..., list[Figure]]] = {
    "merge": merge.run,
    "pieces": pieces.run,
    "aggregators": aggregators.run,
    "planning": planning.run,
    "lookup": lookup.run,
    "transforms": transforms.run,
    "sql": sql_queries.run,
    "spark_scan": spark_scan.run,
    "storage": storage.run,
    "floor": floor.run,
    "microbatch": microbatch.run,
    "ingest": ingest.run,
    "many_tables": many_tables.run,
}
_OUT = Path(__file__).with_name("out") / "latest.json"


def main() -> int:
    """Run the parts that were asked for."""
    options = _options()
    machine = facts()
    print(f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gb']} GB, ", end="")
    print(f"load {machine['load_average'][0]:.1f}, commit {machine['commit'][:12]}")
    parts = {}
    failed = False
    with TemporaryDirectory(prefix="lakeward-bench-", dir=options.scratch) as scratch:
        for name in options.only or PARTS:
            load, started = os.getloadavg(), time.perf_counter()
            folder = Path(scratch) / name
            folder.mkdir()
            try:
                figures = PARTS[name](quick=options.quick, scratch=folder)
            except Exception as error:
                print(f"\n{name}: FAILED: {error}", file=sys.stderr)
                parts[name] = {"error": str(error)}
                failed = True
                continue
            seconds = time.perf_counter() - started
            print_part(name, figures, seconds)
            parts[name] = {"seconds": seconds, "load_average": load, "figures": figures}
    machine["load_average_end"] = os.getloadavg()
    write_json(options.out, machine, parts, quick=options.quick)
    print(f"\nwritten to {options.out}")
    return 1 if failed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="NAME", help=f"parts to run: {', '.join(PARTS)}"
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the sizes, few rounds")
    parser.add_argument("--out", type=Path, default=_OUT, help="where the JSON goes")
    parser.add_argument("--scratch", type=Path, help="directory for temporary data")
    options = parser.parse_args()
    options.only = [name for given in options.only for name in given.split(",") if name]
    unknown = set(options.only) - set(PARTS)
    if unknown:
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    return options


if __name__ == "__main__":
    sys.exit(main())
