"""The options of commands that talk to a broker, under Kafka's names, and the client configuration they make."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from .errors import BadUsage
from .options import DEFAULT_LISTEN, properties


def client_options(parser: ArgumentParser) -> None:
    """Declare ``--bootstrap-server`` and ``--command-config``."""
    parser.add_argument(
        "--bootstrap-server",
        metavar="HOST:PORT,…",
        default=str(DEFAULT_LISTEN),
        help=f"brokers to start from (default: {DEFAULT_LISTEN})",
    )
    parser.add_argument(
        "--command-config", type=Path, metavar="FILE", help="a properties file with client configs, for security say"
    )


def client_config(options: Namespace) -> dict[str, str]:
    """The client configuration, as confluent-kafka takes it, that the options of :func:`client_options` ask for.

    :raises BadUsage: the file cannot be read
    """
    config: dict[str, str] = {}
    if options.command_config is not None:
        try:
            config = properties(options.command_config.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise BadUsage(f"cannot read {options.command_config}: {' '.join(str(error).split())}") from error
    return {**config, "bootstrap.servers": options.bootstrap_server}
