"""The options of commands that talk to a broker, under Kafka's names, and the client configuration
they make.
"""

from __future__ import annotations

import os
import socket
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import BadUsage, Failure
from .options import DEFAULT_LISTEN, properties

if TYPE_CHECKING:
    from headrace.client.settings import Settings

_CONNECT_TIMEOUT_S = 10.0


def client_options(parser: ArgumentParser) -> None:
    """Declare ``--bootstrap-server`` and ``--command-config``."""
    parser.add_argument(
        "--bootstrap-server",
        metavar="HOST:PORT,…",
        default=str(DEFAULT_LISTEN),
        help=f"brokers to start from (default: {DEFAULT_LISTEN})",
    )
    parser.add_argument(
        "--command-config",
        type=Path,
        metavar="FILE",
        help="a properties file with client configs, for security say",
    )


def client_config(options: Namespace) -> dict[str, str]:
    """The client configuration, as confluent-kafka takes it, that the options of
    :func:`client_options` ask for.

    :raises BadUsage: the file cannot be read
    """
    from headrace.client.settings import from_java

    config: dict[str, str] = {}
    if options.command_config is not None:
        try:
            config = properties(options.command_config.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise BadUsage(
                f"cannot read {options.command_config}: {' '.join(str(error).split())}"
            ) from error
    return {**from_java(config), "bootstrap.servers": options.bootstrap_server}


def connection_settings(config: Mapping[str, str]) -> Settings:
    """How our own connections are made with a configuration of :func:`client_config`.

    :raises BadUsage: it asks for security of which they are not capable
    """
    from headrace.client.settings import UnsupportedSetting, settings

    try:
        return settings(config)
    except UnsupportedSetting as error:
        raise BadUsage(str(error)) from error


def must_answer(config: Mapping[str, str]) -> None:
    """See at once whether somebody listens at a bootstrap server; clients would go on trying until
    their time is up.

    :raises Failure: nobody does
    :raises BadUsage: ``bootstrap.servers`` cannot be read
    """
    from headrace.client.cluster import parse_bootstrap

    try:
        addresses = parse_bootstrap(config["bootstrap.servers"])
    except ValueError as error:
        raise BadUsage(str(error)) from error
    problems = []
    for host, port in addresses:
        try:
            socket.create_connection((host, port), _CONNECT_TIMEOUT_S).close()
            return
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error
            problems.append(f"no broker answers at {host}:{port}: {reason}")
    raise Failure("; ".join(problems))
