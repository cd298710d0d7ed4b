"""The coordinators of groups and transactions, and requests to them with retries."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from headrace.errors import ErrorCode

from .connection import Connection
from .errors import ClientError, ConnectionFailed, RequestRefused, refused

T = TypeVar("T")

_FIRST_BACKOFF_MS = 20
_LAST_BACKOFF_MS = 1000
MOVED = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}
"""Error codes after which a client looks the coordinator up again, or waits for it."""

Ask = Callable[[Connection, Sequence[str], int], Awaitable[Mapping[str, T | RequestRefused]]]
"""Asks a coordinator about some of its groups.

Takes (connection, group ids, timeout in ms); returns group id → answer or refusal.
"""


class CoordinatorType(NamedTuple):
    """A type of key that has a coordinator.

    :param key_type: the number of the type in FindCoordinator
    :param name: the name of the type, for error texts
    """

    key_type: int
    name: str


GROUP = CoordinatorType(0, "group")
TRANSACTION = CoordinatorType(1, "transactional id")


class Brokers(Protocol):
    """The part of a cluster that :class:`Coordinators` needs."""

    async def connection(self, node_id: int | None = None, purpose: str = "calls") -> Connection:
        """Return an open connection to ``node_id``, or to any broker."""

    def learn(self, node_id: int, host: str, port: int) -> None:
        """Remember the address of a broker."""


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


def left_ms(deadline_s: float) -> int:
    """Return the milliseconds until ``deadline_s`` on the event loop's clock; at least 1."""
    return max(1, int((deadline_s - asyncio.get_running_loop().time()) * 1000))


async def backing_off(attempt: Callable[[], Awaitable[T | None]], timeout_ms: int) -> T | None:
    """Call ``attempt`` with growing pauses until it returns a result.

    :returns: the result; None if there is none within ``timeout_ms``
    """
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + timeout_ms / 1000
    pause_ms = _FIRST_BACKOFF_MS
    while (result := await attempt()) is None:
        if loop.time() + pause_ms / 1000 > deadline_s:
            return None
        await asyncio.sleep(pause_ms / 1000)
        pause_ms = min(2 * pause_ms, _LAST_BACKOFF_MS)
    return result


class Coordinators:
    """A cache of the coordinators of groups, or of transactional ids.

    It looks up many coordinators in one request, and looks up a coordinator that has moved again.
    """

    def __init__(self, brokers: Brokers, of: CoordinatorType = GROUP) -> None:
        self._brokers = brokers
        self._type = of
        self._node_of: dict[str, int] = {}

    def assume(self, group_id: str, node_id: int) -> None:
        """Cache ``node_id``, which has listed the group as its own, to save a look-up."""
        self._node_of.setdefault(group_id, node_id)

    def node_id(self, group_id: str) -> int | None:
        """Return the cached coordinator of ``group_id``, or None."""
        return self._node_of.get(group_id)

    async def ask(
        self, group_ids: Iterable[str], ask: Ask[T], timeout_ms: int
    ) -> dict[str, T | ClientError]:
        """Call ``ask`` for each coordinator of the groups; retry for groups whose coordinator has
        moved or is unreachable.

        :returns: group id → answer, or the error that stands in its place
        """
        pending = list(dict.fromkeys(group_ids))
        answers: dict[str, T | ClientError] = {}
        problems: dict[str, ClientError] = {}
        deadline_s = asyncio.get_running_loop().time() + timeout_ms / 1000

        async def attempt() -> bool | None:
            for group_id, answer in (await self._attempt(pending, ask, deadline_s)).items():
                if isinstance(answer, ClientError) and _is_transient(answer):
                    problems[group_id] = answer
                    if not _is_loading(answer):
                        self._node_of.pop(group_id, None)
                else:
                    answers[group_id] = answer
            pending[:] = [group_id for group_id in pending if group_id not in answers]
            return None if pending else True

        await backing_off(attempt, timeout_ms)
        for group_id in pending:
            reason = (
                f"the coordinator of {self._type.name} '{group_id}' cannot be reached: "
                f"{problems[group_id]}"
            )
            answers[group_id] = ConnectionFailed(reason)
        return answers

    async def _attempt(
        self, group_ids: Sequence[str], ask: Ask[T], deadline_s: float
    ) -> dict[str, T | ClientError]:
        try:
            answers: dict[str, T | ClientError] = dict(await self._look_up(group_ids, deadline_s))
        except ClientError as error:
            return dict.fromkeys(group_ids, error)
        led: dict[int, list[str]] = {}
        for group_id in group_ids:
            if group_id in answers:
                continue
            node_id = self._node_of.get(group_id)
            if node_id is None:  # another call has found out during the look-up
                answers[group_id] = ConnectionFailed("it has moved")
            else:
                led.setdefault(node_id, []).append(group_id)

        async def ask_one(node_id: int, group_ids: Sequence[str]) -> None:
            try:
                opening = self._brokers.connection(node_id, "coordinator")
                connection = await in_time(opening, deadline_s, f"broker {node_id}")
                found = await ask(connection, group_ids, left_ms(deadline_s))
                missing = ConnectionFailed(
                    f"the answer of {connection.address} does not mention it"
                )
                answers.update({group_id: found.get(group_id, missing) for group_id in group_ids})
            except ClientError as error:
                answers.update(dict.fromkeys(group_ids, error))

        await asyncio.gather(*(ask_one(node_id, group_ids) for node_id, group_ids in led.items()))
        return answers

    async def _look_up(
        self, group_ids: Sequence[str], deadline_s: float
    ) -> dict[str, RequestRefused]:
        """Look up the coordinators that are not cached; return the refusals."""
        unknown = tuple(group_id for group_id in group_ids if group_id not in self._node_of)
        if not unknown:
            return {}
        connection = await in_time(self._brokers.connection(), deadline_s, "the cluster")
        messages = connection.messages("find_coordinator")
        request = messages.FindCoordinatorRequest(
            key_type=self._type.key_type, coordinator_keys=unknown
        )
        response: Any = await connection.request(request, timeout_ms=left_ms(deadline_s))
        refusals = {}
        for found in response.coordinators:
            group_id = str(found.key)
            named = f"{self._type.name} '{group_id}'"
            refusal = refused(f"finding the coordinator of {named}", found, f"DESCRIBE on {named}")
            if refusal is not None:
                refusals[group_id] = refusal
            else:
                self._brokers.learn(int(found.node_id), str(found.host), int(found.port))
                self._node_of[group_id] = int(found.node_id)
        for group_id in unknown:
            if group_id not in self._node_of and group_id not in refusals:
                raise ConnectionFailed(
                    f"the broker at {connection.address} names no coordinator of '{group_id}'"
                )
        return refusals


def _is_transient(error: ClientError) -> bool:
    if isinstance(error, RequestRefused):
        return error.code in MOVED
    return isinstance(error, ConnectionFailed)


def _is_loading(error: ClientError) -> bool:
    return (
        isinstance(error, RequestRefused) and error.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    )
