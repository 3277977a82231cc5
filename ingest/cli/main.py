# SPDX-License-Identifier: Apache-2.0
"""The `lakeward` command: parses arguments, calls what does the work, maps errors to exit codes.

Long work happens in `daemon`, `demo` and the modules of `commands`; this module puts their commands
together and owns what is printed when something fails.
"""

import argparse
import json
import logging
import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ingest.cli.compact import add_compact_command
from ingest.cli.config_arguments import add_configuration, add_schema_command, resolved
from ingest.cli.doctor import add_doctor_command
from ingest.cli.expire import add_expire_command
from ingest.cli.orphan import add_orphan_command
from ingest.cli.pipeline import add_pipeline_commands
from ingest.cli.plan import add_plan_command
from ingest.cli.quarantine import add_quarantine_commands
from ingest.cli.recover import recover_offsets
from ingest.cli.resnapshot import add_resnapshot_command
from ingest.cli.simulate import add_simulate_command
from ingest.cli.stream import add_stream_commands
from ingest.cli.table import add_table_commands
from ingest.cli.verify import add_verify_command
from ingest.config.loading import Resolved
from ingest.config.locations import mistakes_of
from ingest.config.settings import Settings
from ingest.daemon import checks, daemon
from ingest.errors import ExitCode, kind_of
from ingest.logs import configure_logging, is_json, log_uncaught
from ingest.observe.metrics.telemetry import PAIMON_FORMAT, version_of
from ingest.observe.text_table import aligned
from ingest.tools.demo import show as demo
from storage.errors import InvalidRequestError, LakewardError

__all__ = ["build_parser", "main"]

_LOG = logging.getLogger(__name__)

_ABOUT = "Carries database changes from Kafka into Apache Paimon tables, on Spark."

_EXAMPLES = """\
examples:
  lakeward demo                            see it work on this machine, in two minutes
  lakeward validate -c shop.yaml --check   what would run, and does the source answer
  lakeward plan -c shop.yaml               tables, types, keys and warnings, from a sample
  lakeward plan -c shop.yaml --estimate    rows, bytes, files and buckets
  lakeward run -c shop.yaml                run until SIGTERM (the running batch is finished)
  lakeward run -c shop.yaml --once         work off the backlog, then end
  lakeward status -c shop.yaml             tables: running, parked, how far behind
  lakeward quarantine ls -c shop.yaml      records that could not be decoded, and why
  lakeward table ls /data/warehouse
  lakeward table scan /data/warehouse 'shop.orders$snapshots'
  lakeward compact --warehouse /data/warehouse shop.orders
  lakeward orphans --warehouse /data/warehouse --database shop --dry-run
  lakeward verify -c shop.yaml 'shop.*' --source '${SHOP_DATABASE}'   equal to the database?
"""


def _exit_codes() -> str:
    lines = [f"  {int(code):>3}  {code.meaning}" for code in ExitCode]
    return "exit codes:\n" + "\n".join(lines)


def build_parser() -> argparse.ArgumentParser:
    """The whole command line; every command sets `run`."""
    parser = argparse.ArgumentParser(
        prog="lakeward",
        description=_ABOUT,
        epilog=f"{_EXAMPLES}\n{_exit_codes()}\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    run = commands.add_parser("run", help="run a pipeline", description=_RUN_ABOUT)
    add_configuration(run)
    run.add_argument("--once", action="store_true", help="work off what is there, then end")
    run.add_argument(
        "--recover-offsets",
        action="store_true",
        help="throw the checkpoint away and go on where the tables say; shows where that is",
    )
    run.add_argument(
        "--dry-run", action="store_true", help="with --recover-offsets: only show, and end"
    )
    run.add_argument(
        "--take-over",
        action="store_true",
        help="end the daemon that owns the stream, for when it cannot be stopped; it commits "
        "nothing any more",
    )
    run.set_defaults(run=_run)
    validate = commands.add_parser(
        "validate",
        help="check a configuration and print what will run",
        description=_VALIDATE,
        epilog=_VALIDATE_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_configuration(validate)
    validate.add_argument(
        "--check", action="store_true", help="also contact the source and try the directories"
    )
    validate.add_argument("--json", action="store_true", help="the result as one JSON object")
    validate.set_defaults(run=_validate)
    add_schema_command(commands)
    add_plan_command(commands)
    add_pipeline_commands(commands)
    add_quarantine_commands(commands)
    add_resnapshot_command(commands)
    add_stream_commands(commands)
    add_table_commands(commands)
    add_compact_command(commands)
    add_expire_command(commands)
    add_orphan_command(commands)
    add_verify_command(commands)
    add_simulate_command(commands)
    add_doctor_command(commands)
    show = commands.add_parser(
        "demo",
        help="a shop's changes through the whole pipeline, on this machine",
        description="Makes a hundred thousand Debezium events, ingests them, shows the tables.",
    )
    show.add_argument("--dir", type=Path, default=Path("demo"), help="default: ./demo")
    show.add_argument("--events", type=int, default=100_000, metavar="N", help="default: 100000")
    show.set_defaults(run=_demo)
    version = commands.add_parser("version", help="versions of Lakeward and what it runs on")
    version.add_argument("--json", action="store_true", help="as one JSON object")
    version.set_defaults(run=_version)
    return parser


_RUN_ABOUT = """Runs until SIGTERM or SIGINT; the batch in progress is finished first. A second
signal stops at once, which is safe: the batch is done again at the next start."""

_VALIDATE = """\
Prints every setting in force and where it comes from, without secrets. Mistakes are told all at
once, each with file, line and column, the key, and what was probably meant. With --check the
broker, the schema registry and the warehouse must answer, too.

Exit code 0 when the pipeline could start, 78 when the configuration is wrong; with --check 69 when
something does not answer, 77 when it refuses the credentials."""

_VALIDATE_EXAMPLES = """\
examples:
  lakeward validate -c shop.yaml
  lakeward validate -c shop.yaml -c production.yaml --check
  lakeward validate -c shop.yaml --set pipeline.trigger.interval=5s --json
"""


def _run(arguments: argparse.Namespace) -> int:
    given = resolved(arguments)
    settings = given.settings
    configure_logging(
        level=settings.log.level,
        form=settings.log.format,
        levels=settings.life.log_levels,
        repeats=settings.life.log_repeats,
    )
    log_uncaught()
    try:
        return _run_configured(arguments, given)
    except (LakewardError, OSError) as error:
        if not is_json():
            raise
        kind = kind_of(error)
        fatal = {"event": "fatal", "action": kind.action, "error": error}
        _LOG.log(kind.level, "%s", error, extra=fatal)
        return int(kind.exit_code)


def _run_configured(arguments: argparse.Namespace, given: Resolved) -> int:
    settings = given.settings
    facts = {key.replace(" ", "_"): value for key, value in _versions().items()}
    _LOG.info(
        "starting",
        extra={
            "event": "starting",
            "pipeline": settings.pipeline.name,
            "pid": os.getpid(),
            **facts,
        },
    )
    if arguments.dry_run and not arguments.recover_offsets:
        raise InvalidRequestError("--dry-run goes with --recover-offsets only")
    if arguments.recover_offsets:
        recover_offsets(settings, dry_run=arguments.dry_run, take_over=arguments.take_over)
        if arguments.dry_run:
            return 0

    def reread() -> Settings:
        nonlocal given
        given = resolved(arguments)
        return given.settings

    return daemon.run(
        settings,
        once=arguments.once,
        reread=None if "-" in arguments.config else reread,
        take_over=arguments.take_over,
        shown=lambda: given.lines,
    )


def _validate(arguments: argparse.Namespace) -> int:
    given = resolved(arguments)
    results = checks.offline(given.settings)
    if arguments.check:
        results += checks.online(given.settings)
    failed = [each for each in results if not each.ok]
    code = int(failed[0].exit_code) if failed else 0
    if arguments.json:
        print(json.dumps(_validation_document(given, results, code), indent=2))
        return code
    print(aligned(["setting", "value", "from"], given.lines))
    print()
    for each in results:
        place = "" if each.ok else given.places.of(each.key) or given.places.told(each.finding)
        at = f"{place}: " if place else ""
        print(f"{'ok  ' if each.ok else 'FAIL'}  {at}{each.name}: {each.finding}")
    print("\nvalid" if not failed else f"\nnot ready: {failed[0].name} (exit code {code})")
    return code


def _validation_document(
    resolved: Resolved, results: Sequence[checks.Finding], code: int
) -> dict[str, Any]:
    return {
        "valid": code == 0,
        "exit_code": code,
        "settings": {key: {"value": v, "from": origin} for key, v, origin in resolved.lines},
        "checks": [{"name": e.name, "ok": e.ok, "finding": e.finding} for e in results],
    }


def _demo(arguments: argparse.Namespace) -> int:
    configure_logging(level="warning", form="text")
    return demo.run(arguments.dir, events=arguments.events)


def _versions() -> dict[str, str]:
    return {
        "lakeward": version_of("lakeward"),
        "python": platform.python_version(),
        **{name: version_of(name) for name in ("pyspark", "pyarrow", "confluent-kafka")},
        "paimon format": PAIMON_FORMAT,
    }


def _version(arguments: argparse.Namespace) -> int:
    versions = _versions()
    if arguments.json:
        print(json.dumps(versions))
    else:
        print("\n".join(f"{name:<16} {text}" for name, text in versions.items()))
    return 0


def _fail(error: BaseException, *, as_json: bool) -> int:
    """Say what went wrong on standard error, and what to do; the exit code."""
    kind = kind_of(error)
    if not isinstance(error, LakewardError):
        told = [(f"{type(error).__name__}: {error}", kind.action)]
    else:
        told = [(_sentence(each), each.hint) for each in mistakes_of(error)]
    if as_json:
        document: dict[str, Any] = {"error": type(error).__name__}
        document |= {"message": told[0][0], "hint": told[0][1]}
        if len(told) > 1:
            document["mistakes"] = [{"message": text, "hint": hint} for text, hint in told]
        print(json.dumps(document), file=sys.stderr)
        return int(kind.exit_code)
    for message, hint in told:
        print(f"lakeward: {message}", file=sys.stderr)
        if hint:
            print(f"  hint: {hint}", file=sys.stderr)
    return int(kind.exit_code)


def _sentence(error: LakewardError) -> str:
    context = dict(error.context)
    place = context.pop("at", "")  # of a configuration file, as compilers say it
    facts = ", ".join(f"{key} = {value}" for key, value in context.items())
    text = error.message + (f" ({facts})" if facts else "") + _detail(error)
    return f"{place}: {text}" if place else text


def _detail(error: LakewardError) -> str:
    return f": {error.detail}" if error.detail else ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit codes are those of `errors.ExitCode`."""
    parsed = build_parser().parse_args(arguments)
    try:
        return int(parsed.run(parsed))
    except LakewardError as error:
        _LOG.debug("the command failed", exc_info=error)
        return _fail(error, as_json=getattr(parsed, "json", False))
    except BrokenPipeError:  # `| head` closed the pipe: not an error, and nothing more to write
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        return _fail(error, as_json=getattr(parsed, "json", False))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
