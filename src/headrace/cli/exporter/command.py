"""``headrace exporter``: serve the lag of all groups of a cluster as metrics for Prometheus."""

from __future__ import annotations

import asyncio
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.cli.client_options import client_config, client_options
from headrace.cli.cluster_run import run_until_stopped
from headrace.cli.descriptors import allow_all_descriptors
from headrace.cli.errors import Failure
from headrace.cli.lag.show import lag_query, query_options
from headrace.cli.log_output import log_to_stderr
from headrace.cli.metrics_access import metrics_access
from headrace.cli.options import (
    Address,
    allow_host_option,
    file_option,
    flag,
    page_address,
    seconds_option,
)

if TYPE_CHECKING:
    from headrace.broker.metrics.server import MetricsAccess
    from headrace.cli.exporter.scraper import Scraper

DEFAULT_LISTEN = Address("127.0.0.1", 9308)
_TIMEOUT_S = 8.0
_WINDOW_S = 60.0
_EPILOG = """\
examples:
  headrace exporter --bootstrap-server broker:9092
  headrace exporter --exclude-groups 'console-consumer-.*' --topics-pattern 'orders|returns'
  headrace exporter --command-config client.properties --listen :9308 \\
      --metrics-users prometheus.users --metrics-tls exporter.pem
"""


def declare(parser: ArgumentParser) -> None:
    """Declare the command's options."""
    parser.description = "Serve the lag of all groups of a cluster as metrics for Prometheus."
    parser.epilog = _EPILOG
    parser.formatter_class = RawDescriptionHelpFormatter
    client_options(parser)
    parser.add_argument(
        "--listen",
        type=page_address,
        default=DEFAULT_LISTEN,
        metavar="[HOST]:PORT",
        help=(
            "address to serve the metrics on; :PORT: all addresses, port 0: a free port "
            f"(default: {DEFAULT_LISTEN})"
        ),
    )
    query_options(parser)
    flag(parser, "--partitions", "add metrics of each partition of each group")
    seconds_option(parser, "--window", "time over which rates are means", _WINDOW_S)
    seconds_option(parser, "--timeout", "limit of one scrape", _TIMEOUT_S)
    file_option(
        parser, "--metrics-tls", "serve HTTPS, with the private key and certificates of a PEM file"
    )
    file_option(
        parser,
        "--metrics-users",
        "a file of NAME:PASSWORD lines: who may read the metrics (default: everybody)",
    )
    allow_host_option(parser, "the metrics are asked for")


def run(options: Namespace) -> int:
    """Serve until SIGTERM or SIGINT.

    :returns: the exit status
    :raises Failure: it cannot start
    """
    query = lag_query(options)
    from headrace.client.config import read_config

    settings = read_config(client_config(options))
    access = metrics_access(options.metrics_tls, options.metrics_users, options.allow_host)
    try:
        import prometheus_client  # noqa: F401
    except ImportError:
        raise Failure(
            "prometheus_client is not installed: pip install 'headrace[exporter]'"
        ) from None
    from headrace.cli.exporter.scraper import Scraper

    timeout_ms = int(options.timeout * 1000)
    scraper = Scraper(
        replace(settings, request_timeout_ms=timeout_ms, connect_timeout_ms=timeout_ms),
        query,
        by_partition=options.partitions,
        timeout_ms=timeout_ms,
        window_s=options.window,
    )
    log_to_stderr()
    allow_all_descriptors()
    asyncio.run(_serve(scraper, options.listen, access))
    return 0


async def _serve(scraper: Scraper, at: Address, access: MetricsAccess) -> None:
    from headrace.broker.metrics.server import MetricsServer

    server = MetricsServer(scraper.page, access)

    async def start() -> str:
        port = await server.start(*at)
        scheme = "http" if access.tls is None else "https"
        return f"metrics are at {scheme}://{Address(at.host, port)}/metrics"

    try:
        await run_until_stopped(at, start)
    finally:
        await server.close()
        await scraper.close()
