# SPDX-License-Identifier: Apache-2.0
"""`lakeward catalog …`: the catalog as a service, without Spark."""

from typing import TYPE_CHECKING

import click

from ingest.cli.commands import Arguments, command, flag, group, option, refuse
from ingest.cli.parameters import PATH, POSITIVE, catalog_at, settings_at, warehouse_or_config
from storage.errors import InvalidOptionError, UnsupportedFeatureError

if TYPE_CHECKING:
    from ingest.tools.catalog_service.access import Tokens
    from ingest.tools.catalog_service.server import Listening

_ABOUT = """\
Serve a catalog to other engines.

`serve` speaks Paimon's REST protocol and, read-only, Iceberg's."""

_EXAMPLES = """\
Examples:
  lakeward catalog serve --warehouse /data/warehouse
  lakeward catalog serve -c shop.yaml --port 9000
  lakeward catalog serve --catalog catalog.yaml --host 0.0.0.0 --tokens tokens.yaml
  lakeward catalog serve --warehouse s3://lake/warehouse --host 0.0.0.0 --tokens tokens.yaml \\
      --tls-cert server.pem --tls-key server.key
"""

catalog = group("catalog", _ABOUT, examples=_EXAMPLES)

_ACCESS, _LIMITS, _LOG = "Access", "Limits", "Log"


@command(
    "serve",
    warehouse_or_config(),
    option("--host", "ADDRESS", "address to listen on (default: 127.0.0.1)", default="127.0.0.1"),
    option("--port", POSITIVE, "port to listen on (default: 8181)", default=8181),
    option(
        "--tokens",
        PATH,
        "tokens file: YAML, the tokens and what they may read and write",
        section=_ACCESS,
    ),
    flag(
        "--without-tokens",
        "let anyone who can reach the address read and write everything",
        section=_ACCESS,
    ),
    option("--tls-cert", PATH, "PEM file of the certificate and its chain", section=_ACCESS),
    option("--tls-key", PATH, "PEM file of the key of the certificate", section=_ACCESS),
    flag(
        "--hand-out-credentials",
        "give clients the options of the object store, secrets included",
        section=_ACCESS,
    ),
    option(
        "--max-body", POSITIVE, "largest body, in MiB (default: 32)", default=32, section=_LIMITS
    ),
    option(
        "--request-timeout",
        POSITIVE,
        "longest request, in s (default: 60)",
        default=60,
        section=_LIMITS,
    ),
    option(
        "--threads",
        POSITIVE,
        "calls of the catalog at a time (default: 16)",
        default=16,
        section=_LIMITS,
    ),
    option(
        "--max-waiting",
        POSITIVE,
        "requests that wait for a thread (default: 256)",
        default=256,
        section=_LIMITS,
    ),
    option(
        "--log-level",
        click.Choice(("debug", "info", "warning", "error")),
        "default: info, with a line per request",
        default="info",
        section=_LOG,
    ),
    option(
        "--log-format",
        click.Choice(("auto", "text", "json")),
        "default: text on a terminal, else json",
        default="auto",
        section=_LOG,
    ),
    into=catalog,
)
def serve(arguments: Arguments) -> int:
    """Serve a catalog over HTTP until SIGTERM or SIGINT.

    Clients of Paimon's REST catalog take the address with `/paimon`, those of Iceberg's with
    `/iceberg`. `/healthz` needs no token, `/metrics` any. Running requests are finished first.
    """
    settings = settings_at(arguments)
    if (arguments.tls_cert is None) != (arguments.tls_key is None):
        refuse("specify both --tls-cert and --tls-key, or neither")
    if arguments.tokens is not None and arguments.without_tokens:
        refuse("specify only one of --tokens, --without-tokens")
    try:
        from ingest.tools.catalog_service.server import Listening, serve
        from ingest.tools.catalog_service.service import CatalogService, Limits
    except ModuleNotFoundError as error:
        raise UnsupportedFeatureError(
            "a package that the catalog service needs is not installed",
            detail=str(error),
            hint='pip install "lakeward[catalog-service]"',
        ) from error
    from ingest.logs import configure_logging, log_uncaught

    at = Listening(arguments.host, arguments.port, arguments.tls_cert, arguments.tls_key)
    configure_logging(level=arguments.log_level, form=arguments.log_format)
    log_uncaught()
    service = CatalogService(
        catalog_at(arguments, settings),
        _tokens(arguments, at),
        Limits(
            body_bytes=arguments.max_body << 20,
            seconds=arguments.request_timeout,
            threads=arguments.threads,
            waiting=arguments.max_waiting,
        ),
        hand_out_credentials=arguments.hand_out_credentials,
    )
    serve(service, at)
    return 0


def _tokens(arguments: Arguments, at: "Listening") -> "Tokens | None":
    if arguments.tokens is not None:
        import time

        from ingest.tools.catalog_service.access import Tokens

        return Tokens(arguments.tokens, time.monotonic)
    if not (at.loopback or arguments.without_tokens):
        raise InvalidOptionError(
            "without tokens the service may listen only on localhost",
            hint="give --tokens FILE, or --without-tokens",
            host=at.host,
        )
    return None
