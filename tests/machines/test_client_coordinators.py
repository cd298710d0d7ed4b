"""Asking coordinators that move, load, hang up and forget to answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from headrace.client import ClientError, ConnectionFailed, RequestRefused
from headrace.client.cluster import TopicMetadata
from headrace.client.coordinators import (
    KEYS_PER_REQUEST,
    Coordinators,
    KeyedRequest,
    Leaders,
    ask_brokers,
)
from headrace.client.lag.partition_leaders import PartitionLeaders
from headrace.protocol.api import FindCoordinatorRequest
from headrace.protocol.errors import ErrorCode

Answers = Mapping[str, Any]


class Brokers:
    """A cluster of which it is said who coordinates what; look-ups are counted."""

    def __init__(
        self, coordinators: dict[str, int], refusals: Mapping[str, ErrorCode] | None = None
    ) -> None:
        self.coordinator_of = coordinators
        self.coordinators: dict[str, int] = {}
        self.timeout_ms = 200
        self.refusals = refusals or {}
        self.look_ups: list[tuple[str, ...]] = []
        self.learnt: dict[int, tuple[str, int]] = {}
        self.down: set[int] = set()

    async def connection(self, node_id: int | None = None, purpose: str = "calls") -> Any:
        if node_id in self.down:
            raise ConnectionFailed(f"broker {node_id} is down")
        return SimpleNamespace(address=f"broker-{node_id}", node_id=node_id, ask=self._find)

    def learn(self, node_id: int, host: str, port: int) -> None:
        self.learnt[node_id] = (host, port)

    async def _find(self, request: FindCoordinatorRequest, *, timeout_ms: int) -> Any:
        keys = tuple(request.coordinator_keys)
        self.look_ups.append(keys)
        return SimpleNamespace(coordinators=list(map(self._found, keys)))

    def _found(self, key: str) -> Any:
        code, node_id = self.refusals.get(key, ErrorCode.NONE), self.coordinator_of.get(key, -1)
        return SimpleNamespace(
            key=key,
            error_code=code,
            error_message=None,
            node_id=node_id,
            host=f"host-{node_id}",
            port=9092,
        )


def ask(
    brokers: Brokers,
    group_ids: Sequence[str],
    answer: Callable[[int, Sequence[str]], Answers],
) -> dict[str, Any]:
    async def send(connection: Any, ids: Sequence[str], timeout_ms: int) -> Answers:
        return answer(connection.node_id, ids)

    cluster: Any = brokers
    return asyncio.run(ask_brokers(cluster, Coordinators(cluster), group_ids, send))


def test_each_coordinator_is_asked_once_for_all_its_groups() -> None:
    brokers = Brokers({"a": 1, "b": 2, "c": 1})
    asked: list[tuple[int, Sequence[str]]] = []

    def answer(node_id: int, ids: Sequence[str]) -> Answers:
        asked.append((node_id, ids))
        return {group_id: f"{group_id}@{node_id}" for group_id in ids}

    assert ask(brokers, ["a", "b", "c", "a"], answer) == {"a": "a@1", "b": "b@2", "c": "c@1"}
    assert sorted(asked) == [(1, ["a", "c"]), (2, ["b"])]
    assert brokers.look_ups == [("a", "b", "c")]
    assert brokers.learnt == {1: ("host-1", 9092), 2: ("host-2", 9092)}


def test_a_group_that_has_moved_is_looked_up_again_and_no_other() -> None:
    brokers = Brokers({"a": 1, "b": 1})

    def answer(node_id: int, ids: Sequence[str]) -> Answers:
        if node_id == 1 and "b" in ids:
            brokers.coordinator_of["b"] = 2
        return {
            group_id: RequestRefused("x", ErrorCode.NOT_COORDINATOR)
            if (group_id, node_id) == ("b", 1)
            else node_id
            for group_id in ids
        }

    assert ask(brokers, ["a", "b"], answer) == {"a": 1, "b": 2}
    assert brokers.look_ups == [("a", "b"), ("b",)]


def test_a_coordinator_that_is_loading_is_asked_again_without_a_look_up() -> None:
    brokers = Brokers({"a": 1})
    tries = 0

    def answer(_: int, ids: Sequence[str]) -> Answers:
        nonlocal tries
        tries += 1
        return {
            "a": RequestRefused("x", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            if tries < 3
            else "done"
        }

    assert ask(brokers, ["a"], answer) == {"a": "done"}
    assert (tries, len(brokers.look_ups)) == (3, 1)


def test_a_broker_that_is_down_is_forgotten() -> None:
    brokers = Brokers({"a": 1})
    answer = lambda node_id, ids: dict.fromkeys(ids, node_id)  # noqa: E731
    assert ask(brokers, ["a"], answer) == {"a": 1}
    brokers.down.add(1)
    brokers.coordinator_of["a"] = 2
    assert ask(brokers, ["a"], answer) == {"a": 2}


def test_a_refusal_is_an_answer_and_is_not_repeated() -> None:
    brokers = Brokers({"a": 1}, {"b": ErrorCode.GROUP_AUTHORIZATION_FAILED})
    asked = []

    def answer(_: int, ids: Sequence[str]) -> Answers:
        asked.append(ids)
        return {"a": RequestRefused("x", ErrorCode.GROUP_ID_NOT_FOUND)}

    answers = ask(brokers, ["a", "b"], answer)
    assert answers["a"].code == ErrorCode.GROUP_ID_NOT_FOUND
    assert answers["b"].code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert asked == [["a"]]


def test_what_gets_no_answer_in_time_fails_and_the_rest_does_not() -> None:
    brokers = Brokers({"a": 1, "b": 2, "c": 1})
    brokers.down.add(2)
    brokers.timeout_ms = 60
    answers = ask(brokers, ["a", "b", "c"], lambda _, ids: {"a": "done"})
    assert answers["a"] == "done"
    assert isinstance(answers["b"], ConnectionFailed) and "broker 2 is down" in str(answers["b"])
    assert isinstance(answers["c"], ConnectionFailed) and "does not mention it" in str(answers["c"])


def test_an_error_of_another_kind_is_not_repeated() -> None:
    tries = 0

    def answer(_: int, ids: Sequence[str]) -> Answers:
        nonlocal tries
        tries += 1
        raise ClientError("the API is missing")

    answers = ask(Brokers({"a": 1}), ["a"], answer)
    assert (str(answers["a"]), tries) == ("the API is missing", 1)


def test_a_coordinator_that_another_call_finds_moved_during_a_look_up_is_looked_up_again() -> None:
    brokers = Brokers({"a": 1, "b": 2})
    cluster: Any = brokers
    find = brokers._find

    async def moved(connection: Any, ids: Sequence[str], timeout_ms: int) -> Answers:
        return dict.fromkeys(ids, RequestRefused("asking it", ErrorCode.NOT_COORDINATOR))

    async def find_while_another_call_asks(*request: Any, timeout_ms: int) -> Any:
        brokers._find = find  # type: ignore[method-assign]
        brokers.timeout_ms = 0
        await ask_brokers(cluster, Coordinators(cluster), ["a"], moved)
        brokers.timeout_ms = 200
        return await find(*request, timeout_ms=timeout_ms)

    def answer(node_id: int, ids: Sequence[str]) -> Answers:
        return dict.fromkeys(ids, node_id)

    brokers.coordinators["a"] = 1
    brokers._find = find_while_another_call_asks  # type: ignore[method-assign]
    assert ask(brokers, ["a", "b"], answer) == {"a": 1, "b": 2}


def test_a_request_about_many_keys_is_divided() -> None:
    sizes = []

    async def send(request: Any, *, timeout_ms: int) -> Any:
        sizes.append(len(request.keys))
        return request

    request = KeyedRequest[int, str](
        lambda keys: cast("Any", SimpleNamespace(keys=keys)),
        lambda response: {key: f"answer {key}" for key in response.keys},
    )
    connection: Any = SimpleNamespace(ask=send)
    answers = asyncio.run(request(connection, range(2 * KEYS_PER_REQUEST + 5), 1000))
    assert sizes == [KEYS_PER_REQUEST, KEYS_PER_REQUEST, 5]
    assert len(answers) == 2 * KEYS_PER_REQUEST + 5 and answers[7] == "answer 7"


@pytest.mark.parametrize("kind", [Leaders, PartitionLeaders])
def test_a_leader_that_another_call_finds_moved_during_a_look_up_is_unknown(
    kind: type[Leaders],
) -> None:
    async def metadata(names: Sequence[str]) -> dict[str, TopicMetadata]:
        if "other" in names:
            leaders.forget(("orders", 0))
        return {name: TopicMetadata(name, UUID(int=1), {0: 7}) for name in names}

    async def locate() -> Mapping[Any, Any]:
        await leaders.learn(["orders"])
        deadline_s = asyncio.get_running_loop().time() + 10
        return await leaders.locate([("orders", 0), ("other", 0)], deadline_s)

    cluster: Any = SimpleNamespace(metadata=metadata)
    leaders = kind(cluster)
    located = asyncio.run(locate())
    assert isinstance(located["orders", 0], ConnectionFailed)  # after which it is asked again
    assert located["other", 0] == 7
