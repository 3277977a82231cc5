# SPDX-License-Identifier: Apache-2.0
"""`lakeward-entrypoint`: what the image starts. Its first argument is the role.

`executor` is what Spark writes into the pods it creates; anything else is `lakeward`. The process
is replaced, so that signals reach who handles them: `tini` gives SIGTERM to this process alone, and
the daemon finishes its batch (with `tini -g` the JVM would get it too, and the batch be lost).
"""

import os
import sys
from collections.abc import Mapping, Sequence

from ingest.kubernetes.executor import executor_command
from storage.errors import LakewardError

_CONFIG = 78
"""`ingest.errors.ExitCode.CONFIG`, without its imports: executors should start at once."""


def command_of(arguments: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """The command that a role stands for.

    Raises:
        InvalidOptionError: an executor's variables are missing.
        NotFoundError: what should be run is not there.
    """
    if list(arguments[:1]) == ["executor"]:
        return executor_command(environ)
    rest = arguments[1:] if list(arguments[:1]) == ["driver"] else arguments
    return [sys.executable, "-P", "-m", "ingest.cli.main", *(rest or ("--help",))]


def main() -> int:
    """Become the process of the role; returns only when that fails."""
    try:
        command = command_of(sys.argv[1:], os.environ)
        os.execv(command[0], command)
    except LakewardError as error:
        facts = ", ".join(f"{key} = {value}" for key, value in error.context.items())
        sys.stderr.write(f"lakeward: {error.message} ({facts})\n  hint: {error.hint}\n")
    return _CONFIG


if __name__ == "__main__":
    sys.exit(main())
