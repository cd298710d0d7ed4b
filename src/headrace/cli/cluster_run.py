"""Runs of commands: those that ask a cluster, and those that serve until they are stopped."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from headrace.patterns import meant

from .client_options import client_settings
from .errors import Failure, one_line_error
from .options import Address

if TYPE_CHECKING:
    from headrace.client import Cluster

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

    return asyncio.run(run())


async def run_until_stopped(at: Address, start: Callable[[], Awaitable[str]]) -> None:
    """Run a server until SIGTERM or SIGINT.

    :param start: starts it; returns a line to print
    :raises Failure: it cannot listen
    """
    from .process import stopping_event

    stopping = stopping_event()
    try:
        line = await start()
    except (OSError, RuntimeError) as error:  # gRPC raises the latter
        raise Failure(f"cannot listen on {at}: {one_line_error(error)}") from error
    print(line, flush=True)
    await stopping.wait()
