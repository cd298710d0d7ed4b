"""The connection options of commands, under Kafka's names, their client configuration, and runs
with a cluster.
"""

from __future__ import annotations

import os
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from headrace.patterns import meant

from .errors import BadUsage, Failure
from .options import DEFAULT_LISTEN, arg, duration_s, properties_file, section

if TYPE_CHECKING:
    from headrace.client import Cluster
    from headrace.client.config import ClientConfig


_MAX_TIMEOUT_S = 3600
"""The most that librdkafka accepts."""


client_options = section(
    "connection",
    arg(
        "-b --bootstrap-server",
        "HOST:PORT,…",
        "bootstrap brokers (default: HEADRACE_BOOTSTRAP_SERVERS, those of the context, or "
        f"{DEFAULT_LISTEN})",
    ),
    arg(
        "--command-config",
        "FILE",
        "a properties file of client configs, such as those of security "
        "(default: HEADRACE_CONFIG, or that of the context)",
    ),
    arg(
        "--context",
        "CONTEXT",
        "a connection that headrace context has named (default: HEADRACE_CONTEXT, or the "
        "current one)",
    ),
)


def _connection(options: Namespace) -> tuple[str, Path | None]:
    """Return the bootstrap servers, and the properties file.

    The credentials of the current context are for its servers: it is of no account if others are
    named.
    """
    servers, file = options.bootstrap_server, options.command_config
    name = options.context
    if name is None:
        if servers is None:
            servers = os.environ.get("HEADRACE_BOOTSTRAP_SERVERS") or None
        file = file or os.environ.get("HEADRACE_CONFIG")
    if name is not None or servers is None:
        from .contexts import read_contexts  # imports msgspec

        contexts = read_contexts()
        if name is None:
            name = os.environ.get("HEADRACE_CONTEXT") or contexts.current
        if name is not None:
            context = contexts.get(name)
            servers = context.bootstrap_servers if servers is None else servers
            file = file or context.command_config
    return str(DEFAULT_LISTEN) if servers is None else servers, Path(file) if file else None


def _timeout_s(text: str) -> float:
    seconds = duration_s(text)
    if seconds > _MAX_TIMEOUT_S:
        raise ArgumentTypeError(f"{text} is more than {_MAX_TIMEOUT_S} seconds")
    return seconds


_TIMEOUT = arg(
    "--timeout", "DURATION", "timeout of a call (default: 30s)", type=_timeout_s, default=30.0
)


def call_options(parser: ArgumentParser) -> None:
    """Declare ``--timeout`` and :data:`client_options`, for a command that calls a broker."""
    _TIMEOUT(parser)
    client_options(parser)


def client_config(options: Namespace) -> dict[str, Any]:
    """Return the client configuration of the options, as librdkafka's properties.

    :param options: parsed from those of :data:`client_options`, perhaps with ``command_property``
    :raises BadUsage: the file cannot be read, or a setting cannot be used
    """
    from headrace.client.errors import UnsupportedSetting
    from headrace.client.java_properties import config_of_file

    servers, file = _connection(options)
    overrides = {"bootstrap.servers": servers, **dict(getattr(options, "command_property", ()))}
    try:
        return config_of_file({} if file is None else properties_file(file), overrides)
    except UnsupportedSetting as error:
        raise BadUsage(str(error) if file is None else f"{file}: {error}") from error


def share_config(options: Namespace, group_id: str) -> dict[str, Any]:
    """Return the configuration of a share consumer: a file may have settings of other clients."""
    from headrace.client.share.consumer import is_setting

    settings = {"client.id": "headrace", **client_config(options), "group.id": group_id}
    return {name: value for name, value in settings.items() if is_setting(name)}


def client_settings(options: Namespace, timeout_s: float) -> ClientConfig:
    """Return the settings of a cluster.

    :param options: parsed from those of :func:`client_options`
    :param timeout_s: of a call, and of opening a connection
    :raises BadUsage: the file cannot be read
    :raises UnsupportedSetting: a setting cannot be used
    """
    from headrace.client.config import read_config

    settings, timeout_ms = read_config(client_config(options)), int(timeout_s * 1000)
    return replace(settings, request_timeout_ms=timeout_ms, connect_timeout_ms=timeout_ms)


T = TypeVar("T")


def on_cluster(options: Namespace, work: Callable[[Cluster], Awaitable[T]]) -> T:
    """Run ``work`` with the cluster that the options name, and close the connections.

    :param options: parsed from those of ``call_options``
    :raises ClientError: no broker answers, or it refuses
    :raises UnsupportedSetting: the client configuration is wrong
    """
    import asyncio  # not for a help

    from headrace.client.errors import UnknownTopic

    settings = client_settings(options, options.timeout)

    async def run() -> T:
        async with settings.cluster() as cluster:
            try:
                return await work(cluster)
            except UnknownTopic as error:
                hint = meant(error.topic, await cluster.all_topics())
                raise Failure(f"{error}; {hint}" if hint else str(error)) from error

    with closing(run()) as running:  # Ctrl-C may come before it begins
        return asyncio.run(running)
