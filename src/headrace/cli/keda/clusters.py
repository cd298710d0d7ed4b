"""The collectors of the clusters that scaled objects name."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from headrace.cli.client_options import client_file
from headrace.cli.errors import Failure
from headrace.client.settings import UnsupportedSetting, settings

from .collector import BacklogCollector
from .scaled_object import InvalidMetadata, ScaledObject

MAX_CLUSTERS = 100
"""The largest number of clusters and logins that are in use at a time."""
UNUSED_S = 600.0
"""The time without use after which the connections to a cluster are closed."""

_SERVERS = "bootstrap.servers"


class Clusters:
    """A collector for each client configuration that scaled objects name.

    The configuration of the scaler is used for its own servers only. For other servers, a scaled
    object gets no credentials, or those of a file for the same servers.

    :param config: of the scaler, in librdkafka's properties
    :param folder: the folder of files that scaled objects may name; None if they may name none
    :param interval_s: see :class:`~headrace.cli.keda.collector.BacklogCollector`, also for
        ``keep_s``
    :param timeout_ms: the limit of a round
    """

    def __init__(
        self,
        config: Mapping[str, str],
        folder: Path | None,
        *,
        interval_s: float,
        keep_s: float,
        timeout_ms: int,
    ) -> None:
        self._config = config
        self._folder = folder
        self._interval_s = interval_s
        self._keep_s = keep_s
        self._timeout_ms = timeout_ms
        self._collectors: dict[tuple[tuple[str, str], ...], BacklogCollector] = {}

    async def collector(self, wanted: ScaledObject) -> BacklogCollector:
        """Return the collector of the cluster of a scaled object.

        :raises InvalidMetadata: it names no servers, or a file that cannot be used
        """
        config = self._config_of(wanted)
        key = tuple(sorted((name, str(value)) for name, value in config.items()))
        if key not in self._collectors:
            await self._close_unused()
        found = self._collectors.get(key)  # another call may have made it meanwhile
        if found is None:
            if len(self._collectors) >= MAX_CLUSTERS:
                raise InvalidMetadata(f"more than {MAX_CLUSTERS} clusters are in use")
            try:
                read = settings(config)
            except UnsupportedSetting as error:
                raise InvalidMetadata(str(error)) from error
            read = replace(
                read, request_timeout_ms=self._timeout_ms, connect_timeout_ms=self._timeout_ms
            )
            found = self._collectors[key] = BacklogCollector(read, self._interval_s, self._keep_s)
        found.used_s = time.monotonic()
        return found

    async def close(self) -> None:
        """Close all connections."""
        collectors, self._collectors = self._collectors, {}
        for one in collectors.values():
            await one.close()

    async def _close_unused(self) -> None:
        limit_s = time.monotonic() - UNUSED_S
        unused = [
            key
            for key, one in self._collectors.items()
            if not one.is_watched and one.used_s < limit_s
        ]
        for one in [self._collectors.pop(key) for key in unused]:
            await one.close()

    def _config_of(self, wanted: ScaledObject) -> Mapping[str, Any]:
        servers = wanted.bootstrap_servers
        if wanted.command_config is None:
            if servers is None or servers == self._config[_SERVERS]:
                return self._config
            return {_SERVERS: servers}
        if self._folder is None:
            raise InvalidMetadata("commandConfig needs a scaler with --config-dir")
        name = wanted.command_config
        if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", name):
            raise InvalidMetadata(f"commandConfig is '{name}', not the name of a file")
        try:
            config = client_file(self._folder / name)
        except Failure as error:
            raise InvalidMetadata(str(error)) from error
        own = config.get(_SERVERS)
        if own is None:
            raise InvalidMetadata(f"{name} does not set bootstrap.servers")
        if servers is not None and servers != own:
            raise InvalidMetadata(f"bootstrapServers are not those that {name} is for")
        return config
