"""The brokers of one cluster: who is there, who leads what, who coordinates a group."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from headrace.errors import ErrorCode

from .connection import Connection
from .coordinators import MOVED, Coordinators
from .errors import ClientError, ConnectionFailed, RequestRefused, UnknownTopic
from .group_requests import asking_for_share_offsets
from .security import PLAINTEXT, Security

_GROUP_RESOURCE_TYPE = 32
_SET_OPERATION = 0
_MIN_CONNECT_MS = 1000


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """One topic as the cluster describes it.

    :param leaders: partition -> node id of its leader; -1 while there is none
    """

    name: str
    topic_id: UUID
    leaders: Mapping[int, int]
    is_internal: bool = False


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """How far a share group is with one partition (KIP-1226).

    :param start_offset: the first offset not yet dealt with; None before the group's first state
        there
    :param lag: records not yet delivered for good; None while unknown
    """

    topic: str
    partition: int
    start_offset: int | None
    lag: int | None


def parse_bootstrap(bootstrap_servers: str) -> list[tuple[str, int]]:
    """``"a:9092,b:9092"`` as a list of (host, port).

    :raises ValueError: an element is not HOST:PORT
    """
    addresses = []
    for server in filter(None, (part.strip() for part in bootstrap_servers.split(","))):
        host, _, port = server.rpartition(":")
        if not host or not port.isdigit():
            raise ValueError(f"'{server}' is not HOST:PORT, as in 127.0.0.1:9092")
        addresses.append((host.strip("[]"), int(port)))
    if not addresses:
        raise ValueError("no broker given: say HOST:PORT, as in 127.0.0.1:9092")
    return addresses


class Cluster:
    """Connections to a cluster's brokers, made when first needed and again after they broke.

    :param bootstrap_servers: ``"host:port,host:port"``
    :param client_id: shown in the broker's logs and group descriptions
    :param timeout_ms: how long one call may take, retries included
    :param connect_timeout_ms: how long to wait for a broker to accept a connection
    :param security: TLS and login; connections opened after it was changed use the new one
    """

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        client_id: str = "headrace",
        timeout_ms: int = 30_000,
        connect_timeout_ms: int = 10_000,
        security: Security = PLAINTEXT,
    ) -> None:
        self.security = security
        self._bootstrap = parse_bootstrap(bootstrap_servers)
        self._client_id = client_id
        self._connect_timeout_ms = connect_timeout_ms
        self._connections: dict[tuple[int | None, str], Connection] = {}
        self._opening: defaultdict[tuple[int | None, str], asyncio.Lock] = defaultdict(asyncio.Lock)
        self._nodes: dict[int, tuple[str, int]] = {}
        self.cluster_id: str | None = None
        """The cluster's own name for itself, once :meth:`metadata` has asked."""
        self.timeout_ms = timeout_ms
        self.coordinators = Coordinators(self)

    async def connection(self, node_id: int | None = None, purpose: str = "calls") -> Connection:
        """An open connection to ``node_id`` (None: any broker).

        Calls of one ``purpose`` share a connection. A broker answers one connection in order, so
        that a long poll holds up what comes after it: give each long poll a purpose of its own.

        :raises ConnectionFailed: it does not answer
        """
        key = (node_id, purpose)
        async with self._opening[key]:
            connection = self._connections.get(key)
            if connection is None or not connection.is_open:
                if connection is not None:
                    await connection.close()
                connection = await self._open(node_id)
                self._connections[key] = connection
            return connection

    async def _open(self, node_id: int | None) -> Connection:
        if node_id is not None:
            if node_id not in self._nodes:
                raise ConnectionFailed(f"broker {node_id} is not known (any more)")
            return await self._connect(*self._nodes[node_id], self._connect_timeout_ms)
        failures = []
        candidates = list(dict.fromkeys([*self._bootstrap, *self._nodes.values()]))
        for host, port in candidates:
            try:  # one that is silent leaves time for the others
                return await self._connect(
                    host, port, max(_MIN_CONNECT_MS, self._connect_timeout_ms // len(candidates))
                )
            except ConnectionFailed as failure:
                failures.append(str(failure))
        raise ConnectionFailed("; ".join(dict.fromkeys(failures)))

    async def _connect(self, host: str, port: int, timeout_ms: int) -> Connection:
        return await Connection.open(
            host, port, client_id=self._client_id, timeout_ms=timeout_ms, security=self.security
        )

    async def close(self) -> None:
        """Hang up everywhere. Share sessions opened over these connections end, and release what
        they hold.
        """
        connections, self._connections = list(self._connections.values()), {}
        await asyncio.gather(*(connection.close() for connection in connections))

    def learn(self, node_id: int, host: str, port: int) -> None:
        """Remember where a broker is that another broker told of."""
        self._nodes[node_id] = (host, port)

    @property
    def nodes(self) -> Mapping[int, tuple[str, int]]:
        """Host and port of each broker known by now; :meth:`metadata` asks for all of them."""
        return self._nodes

    async def metadata(
        self, names: Iterable[str] | None = (), topic_ids: Iterable[UUID] = ()
    ) -> dict[str, TopicMetadata | ErrorCode]:
        """The topics asked for, by name; an error code for one that cannot be had (unknown ids are
        left out).

        :param names: topic names; None for all topics
        :param topic_ids: topics known by id only
        """
        connection = await self.connection()
        messages = connection.messages("metadata")
        wanted = None
        if names is not None:
            by_name = [messages.MetadataRequestTopic(name=name, topic_id=None) for name in names]
            by_id = [
                messages.MetadataRequestTopic(name=None, topic_id=topic_id)
                for topic_id in topic_ids
            ]
            wanted = tuple(by_name + by_id)
        request = messages.MetadataRequest(
            topics=wanted,
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
            **(
                {}
                if connection.version("metadata") > 10
                else {"include_cluster_authorized_operations": False}
            ),
        )
        response = await connection.request(request, timeout_ms=self.timeout_ms)
        self.cluster_id = response.cluster_id
        self._nodes = {
            int(broker.node_id): (str(broker.host), int(broker.port)) for broker in response.brokers
        }
        return {
            topic.name: ErrorCode(topic.error_code)
            if topic.error_code
            else TopicMetadata(
                str(topic.name),
                topic.topic_id,
                {int(p.partition_index): int(p.leader_id) for p in topic.partitions},
                bool(topic.is_internal),
            )
            for topic in response.topics
            if topic.name is not None
        }

    async def topics(self, names: Sequence[str]) -> dict[str, TopicMetadata]:
        """The named topics, all of which must exist.

        :raises UnknownTopic: one does not
        :raises ClientError: one may not be read
        """
        found = await self.existing_topics(names)
        for name in names:
            if name not in found:
                raise UnknownTopic(name)
        return found

    async def existing_topics(self, names: Sequence[str]) -> dict[str, TopicMetadata]:
        """Those of the named topics that exist.

        :raises ClientError: one may not be read
        """
        found: dict[str, TopicMetadata] = {}
        for name, topic in (await self.metadata(names)).items():
            if isinstance(topic, TopicMetadata):
                found[name] = topic
            elif topic is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise RequestRefused(f"looking up topic '{name}'", topic)
        return found

    async def coordinator_call(
        self,
        group_id: str,
        build: Callable[[Connection], Any],
        code_of: Callable[[Any], int] = lambda r: r.error_code,
    ) -> Any:
        """Send what ``build`` makes to the coordinator of ``group_id``, looking for it anew for as
        long as it moves.

        :param code_of: the error code in the response
        :raises ConnectionFailed: no coordinator was found in time
        """

        async def ask(connection: Connection, _: Sequence[str], timeout_ms: int) -> dict[str, Any]:
            response = await connection.request(build(connection), timeout_ms=timeout_ms)
            code = code_of(response)
            return {group_id: RequestRefused("asking it", code) if code in MOVED else response}

        answer = (await self.coordinators.ask([group_id], ask, self.timeout_ms))[group_id]
        if isinstance(answer, ClientError):
            raise answer
        return answer

    async def set_group_configs(
        self, group_id: str, configs: Mapping[str, str], *, validate_only: bool = False
    ) -> None:
        """Set configs of a group, such as ``share.auto.offset.reset``; others keep their values.

        :param validate_only: only ask whether the broker would take them
        :raises RequestRefused: the broker does not take one of them
        """
        connection = await self.connection()
        messages = connection.messages("incremental_alter_configs")
        changes = tuple(
            messages.AlterableConfig(name=name, config_operation=_SET_OPERATION, value=value)
            for name, value in configs.items()
        )
        resource = messages.AlterConfigsResource(
            resource_type=_GROUP_RESOURCE_TYPE, resource_name=group_id, configs=changes
        )
        request = messages.IncrementalAlterConfigsRequest(
            resources=(resource,), validate_only=validate_only
        )
        (answer,) = (await connection.request(request, timeout_ms=self.timeout_ms)).responses
        if answer.error_code:
            what = f"setting {dict(configs)} on group '{group_id}'"
            raise RequestRefused(what, int(answer.error_code), answer.error_message)

    async def group_config(self, group_id: str, name: str) -> str | None:
        """The value of a config of a group, its default if it was never set; None if the broker
        knows no such config.

        :raises RequestRefused: the broker does not tell
        """
        return (await self.group_configs(group_id, [name])).get(name)

    async def group_configs(self, group_id: str, names: Sequence[str]) -> dict[str, str]:
        """The values of configs of a group, their defaults if they were never set; without those
        that are unknown.

        :raises RequestRefused: the broker does not tell
        """
        connection = await self.connection()
        messages = connection.messages("describe_configs")
        resource = messages.DescribeConfigsResource(
            resource_type=_GROUP_RESOURCE_TYPE,
            resource_name=group_id,
            configuration_keys=tuple(names),
        )
        request = messages.DescribeConfigsRequest(resources=(resource,))
        (answer,) = (await connection.request(request, timeout_ms=self.timeout_ms)).results
        if answer.error_code:
            what = f"asking for {', '.join(names)} of group '{group_id}'"
            raise RequestRefused(what, int(answer.error_code), answer.error_message)
        return {
            str(config.name): str(config.value) for config in answer.configs if config.name in names
        }

    async def share_lag(self, group_id: str, topics: Sequence[str]) -> list[PartitionLag]:
        """Return a share group's progress in every partition of ``topics`` (KIP-1226).

        :returns: ordered by topic and partition
        :raises UnknownTopic: a topic does not exist
        :raises ClientError: the coordinator refuses or does not answer
        """
        partitions = {
            name: sorted(topic.leaders) for name, topic in (await self.topics(topics)).items()
        }
        ask = asking_for_share_offsets({group_id: partitions})
        answer = (await self.coordinators.ask([group_id], ask, self.timeout_ms))[group_id]
        if isinstance(answer, ClientError):
            raise answer
        lags = [
            PartitionLag(
                str(topic.topic_name),
                int(p.partition_index),
                int(p.start_offset) if p.start_offset >= 0 else None,
                int(p.lag) if getattr(p, "lag", -1) >= 0 else None,
            )
            for topic in answer.topics
            for p in topic.partitions
        ]
        return sorted(lags, key=lambda lag: (lag.topic, lag.partition))
