# SPDX-License-Identifier: Apache-2.0
"""See `tests.sql.suite`."""

import argparse
import pathlib
import sys
import tempfile

from tests.sql.suite import CASES, load, rewritten, run_case


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sql")
    parser.add_argument("--rewrite", nargs="*", type=pathlib.Path)
    arguments = parser.parse_args()
    faults = 0
    for path in arguments.rewrite or sorted(CASES.glob("*.yaml")):
        with tempfile.TemporaryDirectory() as directory:
            temporary = pathlib.Path(directory)
            if arguments.rewrite:
                path.write_text(rewritten(path, temporary), encoding="utf-8")
                continue
            for number, case in enumerate(load(path)):
                (temporary / str(number)).mkdir()
                for text in run_case(case, temporary / str(number)):
                    print(f"{path.stem}/{case['id']}: {text}")
                    faults += 1
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
