"""``headrace serve``: run a broker."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import NoReturn

from headrace.imports import never_collected

from .metrics_access import METRICS_ACCESS
from .nouns import allow_host_option, arg, command, file_option, one_of, repeatable, switch
from .options import (
    DEFAULT_DATA_DIR,
    DEFAULT_LISTEN,
    address,
    host_name,
    listen_address,
    port_number,
    setting,
)


@command(
    "run a Kafka-protocol broker",
    arg(
        "--listen",
        action="append",
        type=listen_address,
        metavar="[NAME://]HOST:PORT",
        help="address to listen on, with PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL, or a name of "
        "listener.security.protocol.map; may be repeated; port 0: free port (default: "
        f"the config listeners, beside which it must not stand, or {DEFAULT_LISTEN})",
    ),
    arg(
        "--advertise",
        action="append",
        type=address,
        metavar="HOST:PORT",
        help="address that clients connect to; once, or once for each --listen "
        "(default: the address of --listen)",
    ),
    one_of(
        arg(
            "--data-dir",
            type=Path,
            metavar="DIR",
            help=f"directory of the broker's state (default: log.dirs, or {DEFAULT_DATA_DIR})",
        ),
        switch("--ephemeral", "keep the state in a temporary directory, deleted at the end"),
    ),
    repeatable(
        "-c", "KEY=VALUE", "a broker config under Kafka's name", dest="configs", type=setting
    ),
    arg(
        "--config",
        dest="config_file",
        type=Path,
        metavar="FILE",
        help="a file of KEY=VALUE lines; -c takes precedence",
    ),
    file_option(
        "--add-scram-file",
        "a file of lines MECHANISM=[name=NAME,password=PASSWORD]: users to add for SCRAM-SHA-256 "
        "or SCRAM-SHA-512, unless they exist; - reads standard input",
    ),
    arg(
        "--metrics-port",
        type=port_number,
        metavar="PORT",
        help="port of the metrics for Prometheus; 0: a free port",
    ),
    arg(
        "--metrics-host",
        type=host_name,
        metavar="HOST",
        default=DEFAULT_LISTEN.host,
        help="host to serve the metrics on (default: %(default)s)",
    ),
    *METRICS_ACCESS,
    allow_host_option("the metrics and the page are asked for"),
    arg(
        "--ui",
        nargs="?",
        const="",
        metavar="OPTIONS",
        help="serve the page of headrace ui, too, in a process of its own, with its options: "
        "--ui='--listen :9380 --actions'",
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
