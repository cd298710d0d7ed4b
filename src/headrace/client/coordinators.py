"""Requests to the brokers that answer for something: coordinators of groups and transactional ids,
leaders of partitions.

One loop sends them all (:func:`ask_brokers`): it looks up who answers for each key, asks these
brokers at once, and asks again, with growing pauses, where one has moved or is unreachable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from headrace.errors import ErrorCode
from headrace.protocol.partitions import TopicPartition

from .connection import Connection
from .errors import ClientError, ConnectionFailed, RequestRefused, UnknownTopic, refused

K = TypeVar("K")
T = TypeVar("T")
V = TypeVar("V")

_FIRST_BACKOFF_MS = 20
_LAST_BACKOFF_MS = 1000
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


@dataclass(frozen=True, slots=True)
class CoordinatorRequest(Generic[K, V]):
    """A request about any number of keys of one broker.

    :param build: makes the request for a connection and keys
    :param parse: returns key → answer or refusal of a response
    """

    build: Callable[[Connection, Sequence[K]], Any]
    parse: Callable[[Any], Mapping[K, V | ClientError]]

    async def __call__(
        self, connection: Connection, keys: Sequence[K], timeout_ms: int
    ) -> Mapping[K, V | ClientError]:
        """Send it, and return the answers."""
        request = self.build(connection, keys)
        return self.parse(await connection.request(request, timeout_ms=timeout_ms))


class Brokers(Protocol):
    """The part of a cluster that the loop needs."""

    async def connection(self, node_id: int | None = None, purpose: str = "calls") -> Connection:
        """Return an open connection to ``node_id``, or to any broker."""

    async def metadata(self, names: Iterable[str] | None = ()) -> Mapping[str, Any]:
        """Look up topics."""

    def learn(self, node_id: int, host: str, port: int) -> None:
        """Remember the address of a broker."""


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


async def backing_off(
    attempt: Callable[[], Awaitable[T | None]], timeout_ms: int, attempts: int | None = None
) -> T | None:
    """Call ``attempt`` with growing pauses until it returns a result.

    :param attempts: the limit of calls; None for none
    :returns: the result; None if there is none within ``timeout_ms``
    """
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + timeout_ms / 1000
    pause_ms = _FIRST_BACKOFF_MS
    made = 1
    while (result := await attempt()) is None:
        # A call without time for its answer would replace the reason by its own failure.
        if loop.time() + 2 * pause_ms / 1000 > deadline_s or made == attempts:
            return None
        await asyncio.sleep(pause_ms / 1000)
        pause_ms = min(2 * pause_ms, _LAST_BACKOFF_MS)
        made += 1
    return result


async def ask_brokers(
    brokers: Brokers,
    places: Places[K],
    keys: Iterable[K],
    send: Send[K, V],
    timeout_ms: int,
    *,
    retried: Collection[int] = (),
    attempts: int | None = None,
) -> dict[K, V | ClientError]:
    """Ask the broker of each key; ask again for keys whose broker has moved or is unreachable.

    :param retried: further error codes after which a key is asked about again; such a refusal is
        its answer when the time is over
    :param attempts: the limit of attempts; None for as many as fit into ``timeout_ms``
    :returns: key → answer, or the error that stands in its place
    """
    pending = list(dict.fromkeys(keys))
    answers: dict[K, V | ClientError] = {}
    deadline_s = asyncio.get_running_loop().time() + timeout_ms / 1000

    async def attempt() -> bool | None:
        answers.update(await _ask_once(brokers, places, pending, send, deadline_s))
        waiting = []
        for key in pending:
            answer = answers[key]
            if _code(answer) in retried:
                waiting.append(key)
            elif _has_moved(answer, places):
                waiting.append(key)
                if _code(answer) != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                    places.forget(key)
        pending[:] = waiting
        return None if pending else True

    if pending:
        await backing_off(attempt, timeout_ms, attempts)
    for key in pending:
        problem = answers[key]
        if isinstance(problem, ClientError) and _code(problem) not in retried:
            answers[key] = places.unreachable(key, problem)
    return answers


async def _ask_once(
    brokers: Brokers,
    places: Places[K],
    keys: Sequence[K],
    send: Send[K, V],
    deadline_s: float,
) -> dict[K, V | ClientError]:
    answers: dict[K, V | ClientError] = {}
    try:
        located = await places.locate(keys, deadline_s)
    except ClientError as error:
        return dict.fromkeys(keys, error)
    keys_of: dict[int, list[K]] = {}
    for key in keys:
        place = located[key]
        if isinstance(place, ClientError):
            answers[key] = place
        else:
            keys_of.setdefault(place, []).append(key)

    async def ask_one(node_id: int, its_keys: Sequence[K]) -> None:
        try:
            opening = brokers.connection(node_id, places.purpose)
            connection = await in_time(opening, deadline_s, f"broker {node_id}")
            mentioned = await send(connection, its_keys, _left_ms(deadline_s))
        except ClientError as error:
            answers.update(dict.fromkeys(its_keys, error))
            return
        missing = ConnectionFailed(f"the answer of {connection.address} does not mention it")
        answers.update({key: mentioned.get(key, missing) for key in its_keys})

    await asyncio.gather(*(ask_one(node_id, its_keys) for node_id, its_keys in keys_of.items()))
    return answers


def _left_ms(deadline_s: float) -> int:
    """Return the milliseconds until ``deadline_s`` on the event loop's clock; at least 1."""
    return max(1, int((deadline_s - asyncio.get_running_loop().time()) * 1000))


def _code(answer: object) -> int | None:
    return answer.code if isinstance(answer, RequestRefused) else None


def _has_moved(answer: object, places: Places[Any]) -> bool:
    return isinstance(answer, ConnectionFailed) or _code(answer) in places.moved


class Coordinators(Places[str]):
    """A cache of the coordinators of groups, or of transactional ids.

    It looks up many coordinators in one request.

    :param key_type: the number of the type in FindCoordinator
    :param name: the name of the type, for error texts
    """

    purpose = "coordinator"

    def __init__(self, brokers: Brokers, key_type: int = 0, name: str = "group") -> None:
        self._brokers = brokers
        self._key_type = key_type
        self._name = name
        self._node_of: dict[str, int] = {}

    def assume(self, group_id: str, node_id: int) -> None:
        """Cache ``node_id``, which has listed the group as its own, to save a look-up."""
        self._node_of.setdefault(group_id, node_id)

    def node_id(self, group_id: str) -> int | None:
        """Return the cached coordinator of ``group_id``, or None."""
        return self._node_of.get(group_id)

    def forget(self, key: str) -> None:
        self._node_of.pop(key, None)

    def unreachable(self, key: str, problem: ClientError) -> ClientError:
        return ConnectionFailed(
            f"the coordinator of {self._name} '{key}' cannot be reached: {problem}"
        )

    async def ask(
        self,
        group_ids: Iterable[str],
        send: Send[str, V],
        timeout_ms: int,
        *,
        retried: Collection[int] = (),
    ) -> dict[str, V | ClientError]:
        """Ask the coordinators of groups, by :func:`ask_brokers`.

        :param send: a :class:`CoordinatorRequest`
        :returns: group id → answer, or the error that stands in its place
        """
        return await ask_brokers(self._brokers, self, group_ids, send, timeout_ms, retried=retried)

    async def ask_one(
        self, group_id: str, build: Callable[[Connection], Any], timeout_ms: int
    ) -> Any:
        """Send a request about one group to its coordinator.

        :param build: makes the request
        :returns: the response, whose error code may be any but those of a coordinator that moved
        :raises ClientError: the coordinator was not reached in time
        """

        def parse(response: Any) -> dict[str, Any]:
            code = getattr(response, "error_code", 0)
            return {group_id: RequestRefused("asking it", code) if code in MOVED else response}

        request: CoordinatorRequest[str, Any] = CoordinatorRequest(lambda c, _: build(c), parse)
        answer = (await self.ask([group_id], request, timeout_ms))[group_id]
        if isinstance(answer, ClientError):
            raise answer
        return answer

    async def locate(self, keys: Sequence[str], deadline_s: float) -> dict[str, int | ClientError]:
        """Return the coordinator of each key, looked up if it is not cached."""
        unknown = tuple(key for key in keys if key not in self._node_of)
        refusals = await self._look_up(unknown, deadline_s) if unknown else {}
        # Another call may have found out during the look-up that a coordinator has moved.
        moved = ConnectionFailed("it has moved")
        located: dict[str, int | ClientError] = {}
        for key in keys:
            refusal = refusals.get(key)
            located[key] = self._node_of.get(key, moved) if refusal is None else refusal
        return located

    async def _look_up(self, keys: Sequence[str], deadline_s: float) -> dict[str, RequestRefused]:
        """Look up coordinators; return the refusals."""
        connection = await in_time(self._brokers.connection(), deadline_s, "the cluster")
        messages = connection.messages("find_coordinator")
        request = messages.FindCoordinatorRequest(
            key_type=self._key_type, coordinator_keys=tuple(keys)
        )
        response: Any = await connection.request(request, timeout_ms=_left_ms(deadline_s))
        refusals = {}
        for coordinator in response.coordinators:
            key = coordinator.key
            named = f"{self._name} '{key}'"
            refusal = refused(
                f"finding the coordinator of {named}", coordinator, f"DESCRIBE on {named}"
            )
            if refusal is not None:
                refusals[key] = refusal
            else:
                node_id = coordinator.node_id
                self._brokers.learn(node_id, coordinator.host, coordinator.port)
                self._node_of[key] = node_id
        for key in keys:
            if key not in self._node_of and key not in refusals:
                raise ConnectionFailed(
                    f"the broker at {connection.address} names no coordinator of '{key}'"
                )
        return refusals


class Leaders(Places[TopicPartition]):
    """The leaders of partitions. A topic is looked up once, and again if a leader has moved.

    :ivar topics: topic name → its metadata, or why there is none
    """

    moved = LEADER_MOVED

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self.topics: dict[str, Any] = {}

    async def learn(self, topics: Iterable[str]) -> None:
        """Look up those of the topics that are not known.

        :raises ClientError: no broker answers
        """
        names = sorted(set(topics) - self.topics.keys())
        if not names:
            return
        metadata = await self._brokers.metadata(names)
        for name in names:
            self.topics[name] = metadata.get(name, UnknownTopic(name))

    def forget(self, key: TopicPartition) -> None:
        self.topics.pop(key[0], None)

    async def locate(
        self, keys: Sequence[TopicPartition], deadline_s: float
    ) -> dict[TopicPartition, int | ClientError]:
        """Return the leader of each partition, looked up if it is not known."""
        await in_time(self.learn(topic for topic, _ in keys), deadline_s, "the cluster")
        located: dict[TopicPartition, int | ClientError] = {}
        for topic, partition in keys:
            metadata = self.topics[topic]
            if isinstance(metadata, ClientError):
                located[topic, partition] = metadata
                continue
            node_id = metadata.leaders.get(partition, -1)
            located[topic, partition] = (
                node_id
                if node_id >= 0
                else ConnectionFailed(f"partition {topic}-{partition} has no leader")
            )
        return located


class EveryBroker(Places[int]):
    """Each broker of the cluster, by its node id."""

    async def locate(self, keys: Sequence[int], deadline_s: float) -> Mapping[int, int]:
        """Return the node ids."""
        return {node_id: node_id for node_id in keys}
