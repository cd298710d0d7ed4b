"""The collectors of the clusters that scaled objects name."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from headrace.cli.client_options import client_file
from headrace.cli.errors import Failure
from headrace.client.config import read_config
from headrace.client.errors import UnsupportedSetting
from headrace.log_lines import LimitedLog, get_logger

from .collector import BacklogCollector
from .scaled_object import InvalidMetadata, ScaledObject

MAX_CLUSTERS = 100
"""The largest number of clusters and logins at a time, beside the scaler's own."""
UNUSED_S = 600.0
"""The time without use after which the connections to a cluster are closed."""

log = LimitedLog(get_logger("headrace.keda"))

_SERVERS = "bootstrap.servers"
_Key = tuple[tuple[str, str], ...]
_OWN: _Key = ()


class Clusters:
    """A collector for each client configuration that scaled objects name.

    Only the operator's clusters can be named: with any address, whoever reaches the scaler could
    explore the network around it. The configuration of the scaler is used for its own servers only.
    For other servers, a scaled object gets no credentials, or those of a file for the same servers.

    :param config: of the scaler, in librdkafka's properties
    :param folder: the folder of files that scaled objects may name; None if they may name none
    :param allowed: further ``bootstrapServers`` that they may name
    :param interval_s: see :class:`~headrace.cli.keda.collector.BacklogCollector`, also for
        ``keep_s``
    :param timeout_ms: the limit of a round
    """

    def __init__(
        self,
        config: Mapping[str, str],
        folder: Path | None,
        *,
        allowed: Collection[str] = (),
        interval_s: float,
        keep_s: float,
        timeout_ms: int,
    ) -> None:
        self._config = config
        self._folder = folder
        self._allowed = allowed
        self._interval_s = interval_s
        self._keep_s = keep_s
        self._timeout_ms = timeout_ms
        self._collectors: dict[_Key, BacklogCollector] = {}

    async def collector(self, scaled_object: ScaledObject) -> BacklogCollector:
        """Return the collector of the cluster of a scaled object.

        :raises InvalidMetadata: it names servers or a file that it may not, or that cannot be used
        """
        config = self._config_of(scaled_object)
        key = _OWN
        if config is not self._config:
            key = tuple(sorted((name, str(value)) for name, value in config.items()))
        collector = self._collectors.get(key)
        if collector is None:
            timeout_ms = self._timeout_ms
            try:
                read = replace(
                    read_config(config),
                    request_timeout_ms=timeout_ms,
                    connect_timeout_ms=timeout_ms,
                )
            except UnsupportedSetting as error:
                raise _unusable(scaled_object.command_config, error) from error
            removed = [] if key == _OWN else self._make_room()
            collector = BacklogCollector(read, self._interval_s, self._keep_s)
            self._collectors[key] = collector
            for other in removed:
                await other.close()
        collector.used_s = time.monotonic()
        return collector

    async def close(self) -> None:
        """Close all connections."""
        collectors, self._collectors = self._collectors, {}
        for collector in collectors.values():
            await collector.close()

    def _make_room(self) -> list[BacklogCollector]:
        """Take out what is unused, or one cluster if there are too many; return what is to close.

        :raises InvalidMetadata: all clusters have answered, and are in use
        """
        limit_s = time.monotonic() - UNUSED_S
        others = {key: other for key, other in self._collectors.items() if key != _OWN}
        keys = [key for key, other in others.items() if other.used_s < limit_s]
        if not keys and len(others) >= MAX_CLUSTERS:
            # A cluster that never answered is the first to go, so that wrong names keep nobody out.
            keys = [key for key, other in others.items() if not other.has_answered]
            keys = [min(keys, key=lambda key: others[key].used_s)] if keys else []
            if not keys:
                raise InvalidMetadata(f"more than {MAX_CLUSTERS} clusters are in use")
        return [self._collectors.pop(key) for key in keys]

    def _config_of(self, scaled_object: ScaledObject) -> Mapping[str, Any]:
        servers, name = scaled_object.bootstrap_servers, scaled_object.command_config
        if name is None:
            if servers is None or servers == self._config[_SERVERS]:
                return self._config
            if servers not in self._allowed:
                raise InvalidMetadata(
                    "bootstrapServers are not those of the scaler: start it with "
                    "--allow-bootstrap for these servers"
                )
            return {_SERVERS: servers}
        if self._folder is None:
            raise InvalidMetadata("commandConfig needs a scaler with --config-dir")
        if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", name):
            raise InvalidMetadata(f"commandConfig is '{name}', not the name of a file")
        try:
            config = client_file(self._folder / name)
        except Failure as error:
            raise _unusable(name, error) from error
        own = config.get(_SERVERS)
        if own is None:
            raise _unusable(name, f"{name} does not set bootstrap.servers")
        if servers is not None and servers != own:
            raise InvalidMetadata(f"bootstrapServers are not those that {name} is for")
        return config


def _unusable(name: str | None, reason: object) -> InvalidMetadata:
    """Log why a configuration cannot be used; callers must not learn what files are there."""
    log.warning(name or "", "commandConfig %s cannot be used: %s", name, reason)
    return InvalidMetadata(
        f"commandConfig '{name}' cannot be used: the scaler's log has the reason"
    )
