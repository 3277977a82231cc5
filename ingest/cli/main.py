# SPDX-License-Identifier: Apache-2.0
"""The `lakeward` command: the list of its commands, each imported when it is called.

Imports of this module must stay small: `lakeward --help` and `lakeward table ls` load neither Spark
nor Kafka (docs/adr/ingest/0027).
"""

import sys
from collections.abc import Sequence

import click

from ingest.cli.commands import Group, Lazy
from ingest.errors import ExitCode

_ABOUT = "Ingests database changes from Kafka into Apache Paimon tables, on Spark."

_EXAMPLES = """\
Examples:
  lakeward demo                            run the whole pipeline on this machine, in two minutes
  lakeward validate -c shop.yaml --check   check the configuration and its connections
  lakeward plan -c shop.yaml               preview tables, types, keys and warnings, from a sample
  lakeward plan -c shop.yaml --estimate    also rows, bytes, files and buckets
  lakeward run -c shop.yaml                run until SIGTERM (the batch in progress is finished)
  lakeward run -c shop.yaml --once         process the backlog, then exit
  lakeward status -c shop.yaml             state and lag of the pipeline, parked tables
  lakeward quarantine ls -c shop.yaml      records that could not be decoded, and why
  lakeward table ls /data/warehouse
  lakeward table scan /data/warehouse 'shop.orders$snapshots'
  lakeward sql --warehouse /data/warehouse -e "SELECT count(*) FROM shop.orders"
  lakeward compact --warehouse /data/warehouse shop.orders
  lakeward orphans --warehouse /data/warehouse --database shop --dry-run
  lakeward verify -c shop.yaml 'shop.*' --source '${SHOP_DATABASE}'
"""

_OPERATE, _TABLES = "Operate a running pipeline", "Inspect and maintain tables"

_COMMANDS = (
    Lazy(
        "Plan and run a pipeline",
        "ingest.cli.start",
        {
            "demo": "run the whole pipeline on this machine, with generated events",
            "validate": "check a configuration and print all settings in force",
            "schema": "print the JSON Schema of configuration files, for editors",
            "plan": "preview tables, types, keys, buckets and warnings, from sampled records",
            "run": "run a pipeline",
        },
    ),
    Lazy(
        _OPERATE,
        "ingest.cli.pipeline",
        {
            "status": "show the state of a pipeline and its tables: lag, parked tables, reasons",
            "pause": "park tables, while the others continue; or pause the whole stream",
            "resume": "resume parked tables, or a paused stream",
            "reload": "reload the configuration",
        },
    ),
    Lazy(
        _OPERATE,
        "ingest.cli.pipeline",
        {"quarantine": "inspect, replay and drop bad records: ls, show, replay, drop"},
    ),
    Lazy(
        _OPERATE,
        "ingest.cli.stream",
        {"resnapshot": "request a new Debezium snapshot of tables, while streaming continues"},
    ),
    Lazy(
        _OPERATE,
        "ingest.cli.stream",
        {"stream": "list the batches of a stream, roll all its tables back: points, rollback"},
    ),
    Lazy(
        _TABLES,
        "ingest.cli.table",
        {"table": "inspect and change tables: ls, show, scan, tag, branch, rollback, rescale, …"},
    ),
    Lazy(
        _TABLES,
        "ingest.cli.sql",
        {"sql": "run SQL statements, or an SQL console, on a warehouse or catalog"},
    ),
    Lazy(
        _TABLES,
        "ingest.cli.sql",
        {"catalog": "serve a catalog to other engines: Paimon's and Iceberg's REST protocols"},
    ),
    Lazy(
        _TABLES,
        "ingest.cli.maintain",
        {"compact": "compact tables, also while other processes write them"},
    ),
    Lazy(
        _TABLES,
        "ingest.cli.maintain",
        {
            "expire": "remove expired snapshots, tags, partitions, consumers and changelogs",
            "orphans": "remove files that no snapshot, tag, branch or changelog references",
        },
    ),
    Lazy(
        _TABLES,
        "ingest.cli.verify",
        {"verify": "compare tables with their source database, or with other tables"},
    ),
    Lazy(
        _TABLES,
        "ingest.cli.maintain",
        {"simulate-compaction": "simulate write and space amplification of compaction settings"},
    ),
    Lazy(
        "Support",
        "ingest.cli.start",
        {
            "doctor": "write an archive of diagnostics for support, without secrets",
            "version": "print the versions of Lakeward and its environment",
        },
    ),
)


def _exit_codes() -> str:
    lines = [f"  {int(code):>3}  {code.meaning}" for code in ExitCode]
    return "Exit codes:\n" + "\n".join(lines)


def _print_version(ctx: click.Context, _parameter: click.Parameter, requested: bool) -> None:
    if not requested or ctx.resilient_parsing:
        return
    from importlib.metadata import PackageNotFoundError, version

    try:
        click.echo(f"lakeward {version('lakeward')}")
    except PackageNotFoundError:  # runs from a source tree
        click.echo("lakeward unknown")
    ctx.exit()


lakeward = Group(
    "lakeward",
    help=_ABOUT,
    examples=f"{_EXAMPLES}\n{_exit_codes()}",
    lazy=_COMMANDS,
    params=[
        click.Option(
            ["--version"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_print_version,
            help="Print the version and exit.",
        )
    ],
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


class _PandasForSparkOnly:
    """Refuses to import pandas unless Spark asks for it.

    pyarrow tries to import it for the first array of Python objects: half a second of CPU, which
    commands without Spark have no use for.
    """

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        """See importlib: None leaves the search to the finders that follow."""
        if name == "pandas" and "pyspark" not in sys.modules:
            raise ModuleNotFoundError("commands without Spark do without pandas", name=name)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit codes are those of `errors.ExitCode`.

    Raises:
        SystemExit: the command line is wrong.
    """
    if arguments is None:
        sys.meta_path.insert(0, _PandasForSparkOnly())
    try:
        code = lakeward.main(
            None if arguments is None else list(arguments),
            prog_name="lakeward",
            standalone_mode=False,
        )
    except click.ClickException as error:
        error.show()
        raise SystemExit(error.exit_code) from None
    except click.Abort:
        print("interrupted", file=sys.stderr)
        return 130
    return int(code or 0)


if __name__ == "__main__":
    sys.exit(main())
