"""The connections, brokers and topics of a cluster."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Collection, Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

from headrace.protocol.api import MetadataRequest
from headrace.protocol.configuration import entries
from headrace.protocol.errors import ErrorCode
from headrace.protocol.schema import Message

from .connection import Connection
from .errors import Answers, ClientError, ConnectionFailed, UnknownTopic, raised, refused
from .sasl import PLAINTEXT, Security

T = TypeVar("T")

_MIN_CONNECT_MS = 1000


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """A topic in a Metadata response.

    :param leaders: partition → node id of its leader; -1 while it has none
    """

    name: str
    topic_id: UUID
    leaders: Mapping[int, int]
    is_internal: bool = False


@dataclass(frozen=True, slots=True)
class BrokerNode:
    """A broker of a cluster.

    :param rack: None if it has none, or while it is unknown
    """

    node_id: int
    host: str
    port: int
    rack: str | None = None


def parse_bootstrap(bootstrap_servers: str) -> list[tuple[str, int]]:
    """Parse ``"a:9092,b:9092"`` into a list of (host, port).

    :raises ValueError: it is empty, or an element is not HOST:PORT
    """
    addresses = []
    for server in entries(bootstrap_servers):
        host, _, port = server.rpartition(":")
        if not host or not port.isdigit():
            raise ValueError(f"'{server}' is not HOST:PORT, such as 127.0.0.1:9092")
        addresses.append((host.strip("[]"), int(port)))
    if not addresses:
        raise ValueError("no broker given: name one as HOST:PORT, such as 127.0.0.1:9092")
    return addresses


async def in_time(awaited: Awaitable[T], deadline_s: float, what: str) -> T:
    """Wait for ``awaited`` until ``deadline_s`` on the event loop's clock.

    :param what: the broker or cluster that has to answer, for the error text
    :raises ConnectionFailed: it takes longer
    """
    try:
        async with asyncio.timeout_at(deadline_s):
            return await awaited
    except TimeoutError:
        raise ConnectionFailed(f"{what} does not answer in time") from None


class Cluster:
    """The connections to a cluster's brokers, opened on first use and again after they break.

    :param bootstrap_servers: ``"host:port,host:port"``
    :param client_id: appears in the broker's logs and in descriptions of groups
    :param timeout_ms: timeout of one call, retries included
    :param connect_timeout_ms: timeout of opening a connection
    :param security: TLS and login; a change applies to connections opened afterwards
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
        self.bootstrap_servers = bootstrap_servers
        self._bootstrap = parse_bootstrap(bootstrap_servers)
        self._client_id = client_id
        self._connect_timeout_ms = connect_timeout_ms
        self._connections: dict[tuple[int | None, str], Connection] = {}
        self._opening: defaultdict[tuple[int | None, str], asyncio.Lock] = defaultdict(asyncio.Lock)
        self.nodes: dict[int, BrokerNode] = {}
        """The brokers by node id, as far as they are known; :meth:`metadata` updates it."""
        self.cluster_id: str | None = None
        """The cluster id; None before the first :meth:`metadata`."""
        self.timeout_ms = timeout_ms
        self.coordinators: dict[str, int] = {}
        """Group id → node id of its coordinator, as far as they are known."""
        self.transaction_coordinators: dict[str, int] = {}
        """The same of transactional ids."""

    async def connection(self, node_id: int | None = None, purpose: str = "calls") -> Connection:
        """Return an open connection to ``node_id``, or to any broker if it is None.

        Calls with the same ``purpose`` share a connection. A broker answers the requests of a
        connection in order, so a long poll delays later requests: use a separate purpose for it.

        :raises ConnectionFailed: the broker is unknown or cannot be reached
        :raises AuthenticationFailed: TLS or the login failed
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
            if node_id not in self.nodes:
                raise ConnectionFailed(f"broker {node_id} is not in the cluster's metadata")
            node = self.nodes[node_id]
            return await self._connect(node.host, node.port, self._connect_timeout_ms)
        failures = []
        learned = ((node.host, node.port) for node in self.nodes.values())
        candidates = list(dict.fromkeys([*self._bootstrap, *learned]))
        for host, port in candidates:
            # Share the timeout: a silent broker must leave time for the others.
            share_ms = max(_MIN_CONNECT_MS, self._connect_timeout_ms // len(candidates))
            try:
                return await self._connect(host, port, share_ms)
            except ConnectionFailed as failure:
                failures.append(str(failure))
        raise ConnectionFailed("; ".join(dict.fromkeys(failures)))

    async def _connect(self, host: str, port: int, timeout_ms: int) -> Connection:
        return await Connection.open(
            host, port, client_id=self._client_id, timeout_ms=timeout_ms, security=self.security
        )

    async def __aenter__(self) -> Cluster:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections. Share sessions opened over them end, and release their records."""
        connections = list(self._connections.values())
        self._connections.clear()
        for connection in connections:  # also if this call is cancelled while it waits
            connection.disconnect()
        await asyncio.gather(*(connection.close() for connection in connections))

    async def ask(self, request: Message, node_id: int | None = None) -> Any:
        """Send a request, and return the response.

        :param node_id: the broker to ask; None for any
        :raises ClientError: see :meth:`connection` and :meth:`Connection.ask`
        """
        deadline_s = asyncio.get_running_loop().time() + self.timeout_ms / 1000
        connection = await in_time(self.connection(node_id), deadline_s, "the cluster")
        return await connection.ask(request, timeout_ms=self.timeout_ms)

    def learn(self, node_id: int, host: str, port: int) -> None:
        """Remember the address of a broker."""
        node = self.nodes.get(node_id)
        if node is None or (node.host, node.port) != (host, port):
            self.nodes[node_id] = BrokerNode(node_id, host, port)

    def within(self, timeout: float | None) -> Cluster:
        """Return a view of the cluster, with the same connections, whose calls end in time.

        :param timeout: of one call, in seconds; None for :attr:`timeout_ms`
        """
        view = copy(self)
        if timeout is not None:
            view.timeout_ms = int(timeout * 1000)
        return view

    async def metadata(self, names: Collection[str] | None = ()) -> Answers[str, TopicMetadata]:
        """Look up topics, and update the addresses of the brokers.

        :param names: topic names; None for all topics
        :returns: name → topic or error
        :raises ClientError: no broker answers
        """
        named = MetadataRequest.MetadataRequestTopic
        topics = None if names is None else [named(name=name) for name in names]
        response = await self.ask(MetadataRequest(topics, allow_auto_topic_creation=False))
        self.cluster_id = response.cluster_id
        self.nodes.clear()
        self.nodes |= {
            broker.node_id: BrokerNode(broker.node_id, broker.host, broker.port, broker.rack)
            for broker in response.brokers
        }
        answers = {
            topic.name: _topic_metadata(topic.name, topic)
            for topic in response.topics
            if topic.name is not None
        }
        if names is None:
            return answers
        return {name: answers.get(name, UnknownTopic(name)) for name in names}

    async def topics(self, names: Collection[str]) -> dict[str, TopicMetadata]:
        """Return the named topics.

        :raises UnknownTopic: a topic does not exist
        :raises ClientError: a topic cannot be looked up
        """
        return raised(await self.metadata(names))

    async def existing_topics(self, names: Collection[str]) -> dict[str, TopicMetadata]:
        """Return the named topics that exist.

        :raises ClientError: a topic cannot be looked up
        """
        topics = (await self.metadata(names)).items()
        return raised({n: topic for n, topic in topics if not isinstance(topic, UnknownTopic)})

    async def all_topics(self) -> dict[str, TopicMetadata]:
        """Return all topics that can be looked up, by name."""
        topics = sorted((await self.metadata(None)).items())
        return {name: topic for name, topic in topics if isinstance(topic, TopicMetadata)}


def _topic_metadata(name: str, topic: Any) -> TopicMetadata | ClientError:
    if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return UnknownTopic(name)
    leaders = {p.partition_index: p.leader_id for p in topic.partitions}
    return refused(
        f"looking up topic '{name}'", topic, f"DESCRIBE on topic '{name}'"
    ) or TopicMetadata(name, topic.topic_id, leaders, topic.is_internal)
