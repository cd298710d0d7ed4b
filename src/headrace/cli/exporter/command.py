"""``headrace exporter``: serve the lag of all groups of a cluster as metrics for Prometheus."""

from __future__ import annotations

import asyncio
from argparse import Namespace

from headrace.cli.client_options import client_options, client_settings
from headrace.cli.lag.show import QUERY_OPTIONS, lag_query
from headrace.cli.metrics_access import METRICS_ACCESS, metrics_access
from headrace.cli.nouns import command
from headrace.cli.options import Address, allow_host_option, listen_option, seconds_option, switch
from headrace.cli.process import allow_all_descriptors, log_to_stderr, run_until_stopped

DEFAULT_LISTEN = Address("127.0.0.1", 9308)


@command(
    "serve the lag of all groups of a cluster as metrics for Prometheus",
    client_options,
    listen_option(DEFAULT_LISTEN, "the metrics"),
    *QUERY_OPTIONS,
    switch("--partitions", "add metrics of each partition of each group"),
    seconds_option("--window", "time over which rates are means", 60.0),
    seconds_option("--timeout", "limit of one scrape", 8.0),
    *METRICS_ACCESS,
    allow_host_option("the metrics are asked for"),
    examples="headrace exporter --bootstrap-server broker:9092\n"
    "headrace exporter --exclude-groups 'console-consumer-.*' --topics-pattern 'orders|returns'\n"
    "headrace exporter --command-config client.properties --listen :9308 \\\n"
    "    --metrics-users prometheus.users --metrics-tls exporter.pem",
)
def run(options: Namespace) -> None:
    """Serve until SIGTERM or SIGINT.

    :raises Failure: it cannot start
    :raises UnsupportedSetting: the client configuration is wrong
    """
    query = lag_query(options)
    settings = client_settings(options, options.timeout)
    access = metrics_access(options)
    from headrace.broker.metrics.server import MetricsServer
    from headrace.cli.exporter.scraper import Scraper

    scraper = Scraper(settings, query, by_partition=options.partitions, window_s=options.window)
    server = MetricsServer(scraper.page, access)
    at = options.listen

    async def start() -> str:
        port = await server.start(*at)
        scheme = "http" if access.tls is None else "https"
        return f"metrics are at {scheme}://{Address(at.host, port)}/metrics"

    async def serve() -> None:
        try:
            await run_until_stopped(at, start)
        finally:
            await server.close()
            await scraper.close()

    log_to_stderr()
    allow_all_descriptors()
    asyncio.run(serve())
