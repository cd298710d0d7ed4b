"""Requests to the brokers that answer for something: coordinators of groups and transactional ids,
leaders of partitions.

One loop sends them all (:func:`ask_brokers`): it looks up who answers for each key, asks these
brokers at once, and asks again, with growing pauses, where one has moved or is unreachable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Generic, TypeVar

from headrace.protocol.api import FindCoordinatorRequest
from headrace.protocol.errors import ErrorCode
from headrace.protocol.partitions import TopicPartition
from headrace.protocol.schema import Message
from headrace.protocol.time_slices import chunks

from .cluster import Cluster, TopicMetadata, in_time
from .connection import Connection
from .errors import (
    Answers,
    ClientError,
    ConnectionFailed,
    RequestRefused,
    has_code,
    refused,
)

K = TypeVar("K")
V = TypeVar("V")

KEYS_PER_REQUEST = 10_000
"""Bounds the work of a broker for one request, and the size of the response."""
_FIRST_PAUSE_S = 0.02
_LAST_PAUSE_S = 1.0
MOVED = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""Error codes after which a client looks the coordinator up again, or waits for it."""
LEADER_MOVED = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
"""Error codes of a broker that does not lead the partition, or not yet."""

Send = Callable[[Connection, Sequence[K], int], Awaitable[Mapping[K, V | ClientError]]]
"""Asks a broker about some keys.

Takes (connection, keys, timeout in ms); returns key → answer or error.
"""


@dataclass(frozen=True)
class KeyedRequest(Generic[K, V]):
    """A request about any number of keys of one broker.

    :param request_of: returns the request about keys
    :param answers_of: returns key → answer or refusal of a response
    """

    request_of: Callable[[Sequence[K]], Message]
    answers_of: Callable[[Any], Mapping[K, V | ClientError]]

    async def __call__(
        self, connection: Connection, keys: Sequence[K], timeout_ms: int
    ) -> Mapping[K, V | ClientError]:
        """Send as many as it takes, and return the answers."""
        answers: Answers[K, V] = {}
        for some in chunks(keys, KEYS_PER_REQUEST):
            response = await connection.ask(self.request_of(some), timeout_ms=timeout_ms)
            answers.update(self.answers_of(response))
        return answers


class Places(Generic[K]):
    """The brokers that answer for keys.

    :cvar purpose: of the connections
    :cvar moved: error codes of a broker that does not answer for a key, or not yet
    """

    purpose = "calls"
    moved = MOVED

    async def locate(self, keys: Sequence[K], deadline_s: float) -> Mapping[K, int | ClientError]:
        """Return the broker of each key, or why it is unknown.

        :raises ClientError: they cannot be looked up
        """
        raise NotImplementedError

    def forget(self, key: K) -> None:
        """Look a key up again before it is asked about."""

    def unreachable(self, key: K, problem: ClientError) -> ClientError:
        """Return the error of a key for which no broker has answered in time."""
        return problem


async def ask_brokers(
    cluster: Cluster,
    places: Places[K],
    keys: Iterable[K],
    send: Send[K, V],
    *,
    retried: Collection[int] = (),
    attempts: int | None = None,
) -> Answers[K, V]:
    """Ask the broker of each key; ask again for keys whose broker has moved or is unreachable.

    :param retried: further error codes after which a key is asked about again; such a refusal is
        its answer when the time is over
    :param attempts: the limit of attempts; None for as many as fit into the cluster's timeout
    :returns: key → answer, or the error that stands in its place
    """
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + cluster.timeout_ms / 1000
    pause_s = _FIRST_PAUSE_S
    pending = list(dict.fromkeys(keys))
    answers: Answers[K, V] = {}
    for attempt in count(1):
        answers |= await _ask_once(cluster, places, pending, send, deadline_s)
        moved = {
            key
            for key in pending
            if isinstance(answers[key], ConnectionFailed) or has_code(answers[key], *places.moved)
        }
        for key in moved:
            if not has_code(answers[key], ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
                places.forget(key)
        pending = [key for key in pending if key in moved or has_code(answers[key], *retried)]
        # A call without time for its answer would replace the reason by its own failure.
        if not pending or attempt == attempts or loop.time() + 2 * pause_s > deadline_s:
            break
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, _LAST_PAUSE_S)
    for key in pending:
        problem = answers[key]
        if isinstance(problem, ClientError) and not has_code(problem, *retried):
            answers[key] = places.unreachable(key, problem)
    return answers


async def _ask_once(
    cluster: Cluster,
    places: Places[K],
    keys: Sequence[K],
    send: Send[K, V],
    deadline_s: float,
) -> Answers[K, V]:
    if not keys:
        return {}
    try:
        located = await places.locate(keys, deadline_s)
    except ClientError as error:
        return dict.fromkeys(keys, error)
    answers: Answers[K, V] = {}
    keys_of: dict[int, list[K]] = {}
    for key in keys:
        place = located[key]
        if isinstance(place, ClientError):
            answers[key] = place
        else:
            keys_of.setdefault(place, []).append(key)

    async def ask_node(node_id: int, its_keys: Sequence[K]) -> None:
        try:
            opening = cluster.connection(node_id, places.purpose)
            connection = await in_time(opening, deadline_s, f"broker {node_id}")
            mentioned = await send(connection, its_keys, _left_ms(deadline_s))
        except ClientError as error:
            answers.update(dict.fromkeys(its_keys, error))
            return
        missing = ConnectionFailed(f"the answer of {connection.address} does not mention it")
        answers.update({key: mentioned.get(key, missing) for key in its_keys})

    await asyncio.gather(*(ask_node(node_id, its_keys) for node_id, its_keys in keys_of.items()))
    return answers


def _left_ms(deadline_s: float) -> int:
    """Return the milliseconds until ``deadline_s`` on the event loop's clock; at least 1."""
    return max(1, int((deadline_s - asyncio.get_running_loop().time()) * 1000))


# Coordinators -------------------------------------------------------------------------------------


class Coordinators(Places[str]):
    """The coordinators of groups. Many are looked up in one request, and cached by the cluster.

    :cvar key_type: the number of the type of the keys in FindCoordinator
    :cvar name: the name of this type, for error texts
    """

    purpose = "coordinator"
    key_type = 0
    name = "group"

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._node_of = cluster.coordinators

    def forget(self, key: str) -> None:
        self._node_of.pop(key, None)

    def unreachable(self, key: str, problem: ClientError) -> ClientError:
        return ConnectionFailed(
            f"the coordinator of {self.name} '{key}' cannot be reached: {problem}"
        )

    async def locate(self, keys: Sequence[str], deadline_s: float) -> Answers[str, int]:
        """Return the coordinator of each key, looked up if it is not cached."""
        unknown = [key for key in keys if key not in self._node_of]
        refusals = await self._look_up(unknown, deadline_s) if unknown else {}
        # Another call may have found out during the look-up that a coordinator has moved.
        moved = ConnectionFailed("it has moved")
        return {key: refusals.get(key, self._node_of.get(key, moved)) for key in keys}

    async def _look_up(self, keys: Sequence[str], deadline_s: float) -> dict[str, RequestRefused]:
        """Look up coordinators; return the refusals."""
        connection = await in_time(self._cluster.connection(), deadline_s, "the cluster")
        request = FindCoordinatorRequest(key_type=self.key_type, coordinator_keys=keys)
        response = await connection.ask(request, timeout_ms=_left_ms(deadline_s))
        refusals = {}
        for coordinator in response.coordinators:
            key = coordinator.key
            named = f"{self.name} '{key}'"
            refusal = refused(
                f"finding the coordinator of {named}", coordinator, f"DESCRIBE on {named}"
            )
            if refusal is not None:
                refusals[key] = refusal
            else:
                self._cluster.learn(coordinator.node_id, coordinator.host, coordinator.port)
                self._node_of[key] = coordinator.node_id
        for key in keys:
            if key not in self._node_of and key not in refusals:
                raise ConnectionFailed(
                    f"the broker at {connection.address} names no coordinator of '{key}'"
                )
        return refusals


class TransactionCoordinators(Coordinators):
    """The coordinators of transactional ids."""

    key_type = 1
    name = "transactional id"

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._node_of = cluster.transaction_coordinators


async def ask_coordinator(cluster: Cluster, group_id: str, request: Message) -> Any:
    """Send a request about one group to its coordinator.

    :returns: the response, whose error code may be any but those of a coordinator that moved
    :raises ClientError: the coordinator was not reached in time
    """

    def answers_of(response: Any) -> dict[str, Any]:
        code = getattr(response, "error_code", 0)
        return {group_id: RequestRefused("asking it", code) if code in MOVED else response}

    send: KeyedRequest[str, Any] = KeyedRequest(lambda _: request, answers_of)
    answer = (await ask_brokers(cluster, Coordinators(cluster), [group_id], send))[group_id]
    if isinstance(answer, ClientError):
        raise answer
    return answer


# Leaders and all brokers --------------------------------------------------------------------------


class Leaders(Places[TopicPartition]):
    """The leaders of partitions. A topic is looked up once, and again if a leader has moved.

    :ivar topics: topic name → its metadata, or why there is none
    """

    moved = LEADER_MOVED

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.topics: dict[str, Any] = {}

    async def learn(self, topics: Iterable[str]) -> None:
        """Look up those of the topics that are not known.

        :raises ClientError: no broker answers
        """
        names = sorted(set(topics) - self.topics.keys())
        if names:
            self.topics |= await self._cluster.metadata(names)

    def forget(self, key: TopicPartition) -> None:
        self.topics.pop(key[0], None)

    async def locate(
        self, keys: Sequence[TopicPartition], deadline_s: float
    ) -> Answers[TopicPartition, int]:
        """Return the leader of each partition, looked up if it is not known."""
        await in_time(self.learn(topic for topic, _ in keys), deadline_s, "the cluster")
        return {key: self._leader(*key) for key in keys}

    def _leader(self, topic: str, partition: int) -> int | ClientError:
        metadata: TopicMetadata | ClientError | None = self.topics.get(topic)
        if metadata is None:  # another call may have found out meanwhile that a leader has moved
            return ConnectionFailed("it has moved")
        if isinstance(metadata, ClientError):
            return metadata
        node_id = metadata.leaders.get(partition, -1)
        if node_id < 0:
            return ConnectionFailed(f"partition {topic}-{partition} has no leader")
        return node_id


class _EveryBroker(Places[int]):
    """Each broker of the cluster, by its node id."""

    async def locate(self, keys: Sequence[int], deadline_s: float) -> Mapping[int, int]:
        return {node_id: node_id for node_id in keys}


async def ask_every_broker(cluster: Cluster, request: Message, what: str) -> Answers[int, Any]:
    """Send a request to every broker of the cluster.

    :param what: what they list, for error texts
    :returns: node id → response, or the error
    :raises ClientError: the brokers cannot be looked up
    """

    async def send(
        connection: Connection, node_ids: Sequence[int], timeout_ms: int
    ) -> Answers[int, Any]:
        response = await connection.ask(request, timeout_ms=timeout_ms)
        refusal = refused(f"listing the {what} of {connection.address}", response)
        return dict.fromkeys(node_ids, refusal or response)

    await cluster.metadata()
    return await ask_brokers(cluster, _EveryBroker(), tuple(cluster.nodes), send)


# Partitions in responses --------------------------------------------------------------------------


def partition_answers(response: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each partition in a response, or in a part of it, with its answer; the names of topics,
    if they have no partitions there.
    """
    for topic in response.responses if hasattr(response, "responses") else response.topics:
        name = str(topic.topic_name if hasattr(topic, "topic_name") else topic.name)
        for answer in getattr(topic, "partitions", (topic,)):
            yield (name if answer is topic else (name, answer.partition_index)), answer
