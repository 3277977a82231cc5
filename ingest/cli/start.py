# SPDX-License-Identifier: Apache-2.0
"""`lakeward demo|validate|plan|run|doctor|version`: before a pipeline runs, running it, support.

Each command imports its dependencies when it runs, so that `--help` and completion are quick.
"""

import datetime
import json
import logging
import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ingest.cli.commands import Arguments, command, flag, option
from ingest.cli.parameters import CONFIGURATION, COUNT, PATH, resolved
from ingest.errors import ExitCode, kind_of
from ingest.logs import configure_logging, is_json, log_uncaught
from ingest.observe.text_table import aligned, plain
from storage.clock import SystemClock
from storage.errors import InvalidRequestError, LakewardError

if TYPE_CHECKING:
    from ingest.config.loading import Resolved
    from ingest.config.settings import Settings
    from ingest.daemon.configuration import Finding

_LOG = logging.getLogger(__name__)

_RUN_EXAMPLES = """\
Examples:
  lakeward run -c shop.yaml
  lakeward run -c shop.yaml -c production.yaml --set pipeline.trigger.interval=5s
  lakeward run -c shop.yaml --once
  lakeward run -c shop.yaml --recover-offsets --dry-run
"""


@command(
    "run",
    CONFIGURATION,
    flag("--once", "process the backlog, then exit"),
    flag(
        "--recover-offsets",
        "discard the checkpoint and resume from the offsets committed in the tables, which "
        "are printed",
    ),
    flag("--dry-run", "with --recover-offsets: only print the offsets"),
    flag(
        "--take-over",
        "fence the daemon that owns the stream, for when it cannot be stopped; it commits "
        "nothing more",
    ),
    examples=_RUN_EXAMPLES,
)
def run(arguments: Arguments) -> int:
    """Run a pipeline until SIGTERM or SIGINT.

    The batch in progress is finished first. A second signal stops at once, which is safe: the batch
    is repeated at the next start.
    """
    cfg = resolved(arguments)
    settings = cfg.settings
    configure_logging(
        level=settings.log.level,
        form=settings.log.format,
        levels=settings.life.log_levels,
        repeats=settings.life.log_repeats,
    )
    log_uncaught()
    try:
        return _run_configured(arguments, cfg)
    except (LakewardError, OSError) as error:
        if not is_json():
            raise
        kind = kind_of(error)
        fatal = {"event": "fatal", "action": kind.action, "error": error}
        _LOG.log(kind.level, "%s", error, extra=fatal)
        return int(kind.exit_code)


def _run_configured(arguments: Arguments, config: "Resolved") -> int:
    settings = config.settings
    if arguments.dry_run and not arguments.recover_offsets:
        raise InvalidRequestError("--dry-run requires --recover-offsets")
    if arguments.recover_offsets:
        from ingest.cli.stream import recover_offsets

        recover_offsets(settings, dry_run=arguments.dry_run, take_over=arguments.take_over)
        if arguments.dry_run:
            return 0

    def reread() -> "Settings":
        nonlocal config
        config = resolved(arguments)
        return config.settings

    from ingest.daemon.spark_start import SparkStart

    starting = SparkStart(settings)  # its JVM starts while the rest is imported
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
    from ingest.daemon import daemon

    return daemon.run(
        settings,
        once=arguments.once,
        reread=None if "-" in arguments.config else reread,
        take_over=arguments.take_over,
        settings_lines=lambda: config.lines,
        starting=starting,
    )


_VALIDATE_EXAMPLES = """\
Examples:
  lakeward validate -c shop.yaml
  lakeward validate -c shop.yaml -c production.yaml --check
  lakeward validate -c shop.yaml --set pipeline.trigger.interval=5s --json
"""


@command(
    "validate",
    CONFIGURATION,
    flag("--check", "also contact the source and the registry, and test write access"),
    flag("--json", "the result as one JSON object"),
    examples=_VALIDATE_EXAMPLES,
)
def validate(arguments: Arguments) -> int:
    """Check a configuration and print every setting in force.

    Each setting is shown with its origin, without secrets. All mistakes are reported at once, each
    with file, line, column, key and a suggestion. --check also contacts the broker and the schema
    registry, and tests write access to the warehouse and the checkpoint.

    Exit code 0: the pipeline could start; 78: the configuration is wrong; with --check 69:
    something does not answer, 77: credentials were refused.
    """
    from ingest.daemon import configuration

    cfg = resolved(arguments)
    results = configuration.offline(cfg.settings)
    if arguments.check:
        results += configuration.online(cfg.settings)
    failed = [check for check in results if not check.ok]
    code = int(failed[0].exit_code) if failed else 0
    if arguments.json:
        print(json.dumps(_validation_document(cfg, results, code), indent=2))
        return code
    print(aligned(["setting", "value", "from"], cfg.lines))
    print()
    for check in results:
        place = "" if check.ok else cfg.places.of(check.key) or cfg.places.of_quoted(check.finding)
        at = f"{place}: " if place else ""
        print(f"{'ok  ' if check.ok else 'FAIL'}  {at}{check.name}: {check.finding}")
    print("\nvalid" if not failed else f"\nnot ready: {failed[0].name} (exit code {code})")
    return code


def _validation_document(
    resolved: "Resolved", results: "Sequence[Finding]", code: int
) -> dict[str, Any]:
    return {
        "valid": code == 0,
        "exit_code": code,
        "settings": {key: {"value": v, "from": origin} for key, v, origin in resolved.lines},
        "checks": [{"name": e.name, "ok": e.ok, "finding": e.finding} for e in results],
    }


_PLAN_EXAMPLES = """\
Examples:
  lakeward plan -c shop.yaml
  lakeward plan -c shop.yaml --estimate            sizes, files and how many buckets
  lakeward plan -c shop.yaml --sample 100000       read more records of every topic
  lakeward plan -c shop.yaml --json | jq '.tables[].name'
  lakeward plan -c shop.yaml --strict && lakeward run -c shop.yaml
"""


@command(
    "plan",
    CONFIGURATION,
    option("--sample", COUNT, "most records to read of each topic (default: 1000)", default=1000),
    flag("--estimate", "also rows, bytes, files and buckets of each table"),
    flag("--strict", "exit code 65 when there is a problem"),
    flag("--json", "as one JSON object"),
    examples=_PLAN_EXAMPLES,
)
def plan(arguments: Arguments) -> int:
    """Show what a pipeline would make of its topics, before it runs.

    Reads some records of the beginning and the end of every topic, decodes them and applies the
    schema policy to a copy of the warehouse's schemas. Nothing is written or committed. Shows every
    topic and table: columns with their types, key, partitions, buckets, options, transforms; what
    would go to quarantine; the mapping of types that need care; and warnings.

    The exit code is 0 if the plan could be made, whatever its content; with --strict 65 if there is
    a problem: a table that cannot be written, records that would go to quarantine. 78: the
    configuration is wrong. 69: source, registry or store do not answer; 77: they refuse the
    credentials.
    """
    from ingest.tools.plan.outline import as_document, plan_text
    from ingest.tools.plan.planner import planned

    if arguments.sample < 1:
        raise InvalidRequestError("--sample must be at least 1")
    settings = resolved(arguments).settings
    outline = planned(settings, records=arguments.sample, estimates=arguments.estimate)
    if arguments.json:
        print(json.dumps(plain(as_document(outline)), indent=2))
    else:
        print(plan_text(outline))
    return int(ExitCode.DATA) if arguments.strict and outline.severe else 0


_DOCTOR_EXAMPLES = """\
Examples:
  lakeward doctor -c shop.yaml
  lakeward doctor -c shop.yaml --table shop.orders --log /var/log/lakeward.log
  lakeward doctor -c shop.yaml --offline -o /tmp/shop.tar.gz
"""


@command(
    "doctor",
    CONFIGURATION,
    option("-o --output", PATH, "default: lakeward-NAME-TIME.tar.gz in the current directory"),
    option("--url", "URL", "address of the daemon's HTTP endpoint"),
    option(
        "--table",
        "NAME",
        "table to describe in detail; repeatable (default: up to 50, parked ones first)",
        multiple=True,
    ),
    option("--log", PATH, "also add the end of this log file; repeatable", multiple=True),
    flag("--offline", "contact neither broker nor registry"),
    flag("--json", "the parts as one JSON object"),
    examples=_DOCTOR_EXAMPLES,
)
def doctor(arguments: Arguments) -> int:
    """Write an archive of diagnostics for support, without secrets.

    It contains versions, facts about this machine, the settings in force, the findings of `validate
    --check`, the daemon's pages and metrics, the state of the stream, and the newest snapshots and
    file statistics of tables. It changes nothing and works without a daemon.

    It contains no rows, keys or payloads, and the values of secret settings are masked everywhere,
    in logs too. It contains names of tables, columns, topics and hosts.
    """
    from ingest.tools.support_bundle import write_bundle

    cfg = resolved(arguments)
    now = datetime.datetime.fromtimestamp(SystemClock().now_ms() / 1000, datetime.UTC)
    default = Path(f"lakeward-{cfg.settings.pipeline.name}-{now:%Y%m%dT%H%M%SZ}.tar.gz")
    target: Path = arguments.output or default
    if target.exists():
        raise InvalidRequestError(
            "the file already exists", hint="choose another name", path=target
        )
    parts = write_bundle(
        target,
        cfg,
        url=arguments.url,
        tables=list(arguments.table),
        logs=list(arguments.log),
        ask=not arguments.offline,
        on_part=lambda part: print(f"  {part}", file=sys.stderr),
    )
    missing = {path: reason for path, reason in parts if reason is not None}
    if arguments.json:
        document = {"bundle": str(target), "parts": [path for path, _ in parts], "missing": missing}
        print(json.dumps(document))
        return 0
    for path, reason in missing.items():
        print(f"missing: {path}: {reason}")
    print(f"{target}, {target.stat().st_size:,} bytes; look at it before you send it")
    return 0


@command(
    "demo",
    option("--dir", PATH, "default: ./demo", default=Path("demo")),
    option("--events", COUNT, "default: 100000", default=100_000),
    examples="Examples:\n  lakeward demo --dir /tmp/demo --events 10000\n",
)
def demo(arguments: Arguments) -> int:
    """Run the whole pipeline on this machine, with generated events.

    Generates 100,000 Debezium events of a shop, ingests them, and shows the tables.
    """
    from ingest.tools.demo import show

    configure_logging(level="warning", form="text")
    return show.run(arguments.dir, events=arguments.events)


def _versions() -> dict[str, str]:
    from ingest.observe.metrics.telemetry import PAIMON_FORMAT, version_of

    return {
        "lakeward": version_of("lakeward"),
        "python": platform.python_version(),
        **{name: version_of(name) for name in ("pyspark", "pyarrow", "confluent-kafka")},
        "paimon format": PAIMON_FORMAT,
    }


@command("schema", examples="Examples:\n  lakeward schema > lakeward.schema.json\n")
def schema(_arguments: Arguments) -> int:
    """Print the JSON Schema of configuration files.

    Editors with a YAML language server complete and check a file whose first line is
    `# yaml-language-server: $schema=lakeward.schema.json`. `lakeward validate` checks more: values
    against each other, expressions, files, variables.
    """
    from ingest.config.settings_page import json_schema

    print(json.dumps(json_schema(), indent=2))
    return 0


@command(
    "version",
    flag("--json", "as one JSON object"),
    examples="Examples:\n  lakeward version --json\n",
)
def version(arguments: Arguments) -> int:
    """Print the versions of Lakeward and of what it runs on."""
    versions = _versions()
    if arguments.json:
        print(json.dumps(versions))
    else:
        print("\n".join(f"{name:<16} {text}" for name, text in versions.items()))
    return 0
