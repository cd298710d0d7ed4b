"""``headrace serve``: run a broker."""

from __future__ import annotations

from argparse import Namespace
from typing import NoReturn

from headrace.imports import never_collected

from .metrics_access import METRICS_ACCESS
from .nouns import command
from .options import (
    DEFAULT_DATA_DIR,
    DEFAULT_LISTEN,
    allow_host_option,
    arg,
    one_of,
    repeatable,
    switch,
)


@command(
    "run a Kafka-protocol broker",
    arg(
        "--listen",
        "[NAME://]HOST:PORT",
        "address to listen on, with PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL, or a name of "
        "listener.security.protocol.map; may be repeated; port 0: free port (default: "
        f"the config listeners, beside which it must not stand, or {DEFAULT_LISTEN})",
        action="append",
    ),
    arg(
        "--advertise",
        "HOST:PORT",
        "address that clients connect to; once, or once for each --listen "
        "(default: the address of --listen)",
        action="append",
    ),
    one_of(
        arg(
            "--data-dir",
            "DIR",
            f"directory of the broker's state (default: log.dirs, or {DEFAULT_DATA_DIR})",
        ),
        switch("--ephemeral", "keep the state in a temporary directory, deleted at the end"),
    ),
    repeatable("-c", "KEY=VALUE", "a broker config under Kafka's name", dest="configs"),
    arg("--config", "FILE", "a file of KEY=VALUE lines; -c takes precedence", dest="config_file"),
    arg(
        "--add-scram-file",
        "FILE",
        "a file of lines MECHANISM=[name=NAME,password=PASSWORD]: users to add for SCRAM-SHA-256 "
        "or SCRAM-SHA-512, unless they exist; - reads standard input",
    ),
    arg(
        "--metrics-port",
        "PORT",
        "port of the metrics for Prometheus; 0: a free port",
    ),
    arg(
        "--metrics-host",
        "HOST",
        "host to serve the metrics on (default: %(default)s)",
        default=DEFAULT_LISTEN.host,
    ),
    *METRICS_ACCESS,
    allow_host_option("the metrics and the page are asked for"),
    arg(
        "--ui",
        "OPTIONS",
        "serve the page of headrace ui, too, in a process of its own, with its options: "
        "--ui='--listen :9380 --actions'",
        nargs="?",
        const="",
    ),
    examples="headrace serve --data-dir /var/lib/headrace\nheadrace serve --ephemeral --ui",
)
def run(options: Namespace) -> NoReturn:
    """Run the broker until SIGTERM or SIGINT.

    :raises Failure: it cannot start
    """
    with never_collected():
        from .broker_process import run_broker  # a help does not import the broker

    run_broker(options)
