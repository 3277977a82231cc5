# SPDX-License-Identifier: Apache-2.0
"""The `lakeward` command: the list of its commands, each imported when it is called.

What starts here must stay small: `lakeward --help` and `lakeward table ls` load neither Spark nor
Kafka (docs/adr/ingest/0027).
"""

import sys
from collections.abc import Sequence

import click

from ingest.cli.commands import Group, Lazy
from ingest.errors import ExitCode

__all__ = ["lakeward", "main"]

_ABOUT = "Carries database changes from Kafka into Apache Paimon tables, on Spark."

_EXAMPLES = """\
Examples:
  lakeward demo                            see it work on this machine, in two minutes
  lakeward validate -c shop.yaml --check   what would run, and does the source answer
  lakeward plan -c shop.yaml               tables, types, keys and warnings, from a sample
  lakeward plan -c shop.yaml --estimate    rows, bytes, files and buckets
  lakeward run -c shop.yaml                run until SIGTERM (the running batch is finished)
  lakeward run -c shop.yaml --once         process the backlog, then exit
  lakeward status -c shop.yaml             tables: running, parked, how far behind
  lakeward quarantine ls -c shop.yaml      records that could not be decoded, and why
  lakeward table ls /data/warehouse
  lakeward table scan /data/warehouse 'shop.orders$snapshots'
  lakeward compact --warehouse /data/warehouse shop.orders
  lakeward orphans --warehouse /data/warehouse --database shop --dry-run
  lakeward verify -c shop.yaml 'shop.*' --source '${SHOP_DATABASE}'   equal to the database?
"""

_OPERATE, _TABLES = "Operate a running pipeline", "Look at tables and maintain them"

_COMMANDS = (
    Lazy(
        "Plan and run a pipeline",
        "ingest.cli.start",
        {
            "demo": "a shop's changes through the whole pipeline, on this machine",
            "validate": "check a configuration and print what will run",
            "schema": "the JSON Schema of configuration files, for editors",
            "plan": "what would become of the topics: tables, types, keys, buckets, warnings",
            "run": "run a pipeline",
        },
    ),
    Lazy(
        _OPERATE,
        "ingest.cli.pipeline",
        {
            "status": "state of a pipeline and its tables: running, parked, why, how far behind",
            "pause": "park tables: the others flow; or the whole stream",
            "resume": "write parked tables again; or resume the stream",
            "reload": "read the configuration again",
        },
    ),
    Lazy(_OPERATE, "ingest.cli.quarantine", {"quarantine": "bad records: ls, show, replay, drop"}),
    Lazy(
        _OPERATE,
        "ingest.cli.resnapshot",
        {"resnapshot": "have Debezium read tables again, while everything streams on"},
    ),
    Lazy(
        _OPERATE,
        "ingest.cli.stream",
        {"stream": "the batches of a stream, and rolling all its tables back to one"},
    ),
    Lazy(
        _TABLES,
        "ingest.cli.table",
        {"table": "one table: ls, show, scan, tag, branch, rollback, rescale, …"},
    ),
    Lazy(
        _TABLES,
        "ingest.cli.compact",
        {"compact": "merge the files of tables, beside whatever writes them"},
    ),
    Lazy(
        _TABLES,
        "ingest.cli.expire",
        {
            "expire": "remove expired snapshots, tags, partitions, consumers and changelogs",
            "orphans": "remove files that nothing references",
        },
    ),
    Lazy(
        _TABLES,
        "ingest.cli.verify",
        {"verify": "compare tables with the database they come from, or with other tables"},
    ),
    Lazy(
        _TABLES,
        "ingest.cli.simulate",
        {"simulate-compaction": "write and space amplification of compaction settings"},
    ),
    Lazy(
        "Support",
        "ingest.cli.start",
        {
            "doctor": "an archive with what a helper needs, without secrets",
            "version": "versions of Lakeward and what it runs on",
        },
    ),
)


def _exit_codes() -> str:
    lines = [f"  {int(code):>3}  {code.meaning}" for code in ExitCode]
    return "Exit codes:\n" + "\n".join(lines)


def _print_version(ctx: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if not wanted or ctx.resilient_parsing:
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit codes are those of `errors.ExitCode`.

    Raises:
        SystemExit: the command line is wrong.
    """
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
