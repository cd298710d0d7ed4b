"""Client instances: what each is asked for, and when it may ask and push (KIP-714)."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

import pytest

from headrace.broker.config.client_metrics import subscription
from headrace.broker.limits import MAX_CLIENT_INSTANCES
from headrace.broker.telemetry.client_instances import ClientInstance, ClientInstances, Push
from headrace.errors import ErrorCode
from headrace.protocol.compression import GZIP, NONE

THROTTLED, UNKNOWN_ID = ErrorCode.THROTTLING_QUOTA_EXCEEDED, ErrorCode.UNKNOWN_SUBSCRIPTION_ID
JAVA = {"client_id": "mine", "client_software_name": "apache-kafka-java"}
MAX_BYTES = 1000


class Clients:
    """The instances under test at a time that the test sets."""

    def __init__(self, *subscriptions: Mapping[str, str]) -> None:
        self.ids = iter(map(UUID, (f"{number:032x}" for number in range(100, 100_000))))
        self.instances = ClientInstances(lambda: next(self.ids))
        self.now_ms = 5
        self.subscribe(*subscriptions)

    def subscribe(self, *subscriptions: Mapping[str, str]) -> None:
        self.instances.set_subscriptions([subscription(one) for one in subscriptions])

    def ask(
        self,
        instance_id: UUID | None = None,
        attributes: Mapping[str, str] = JAVA,
        connection: int = 1,
    ) -> ClientInstance | ErrorCode:
        return self.instances.ask(instance_id, attributes, connection, self.now_ms)

    def asked(self, instance_id: UUID | None = None, **more: object) -> ClientInstance:
        instance = self.ask(instance_id, **more)  # type: ignore[arg-type]
        assert isinstance(instance, ClientInstance)
        return instance

    def push(
        self,
        instance: ClientInstance,
        *,
        subscription_id: int | None = None,
        terminating: bool = False,
        codec: int = NONE,
        size_bytes: int = 10,
    ) -> ErrorCode:
        push = Push(
            instance.instance_id,
            instance.subscription_id if subscription_id is None else subscription_id,
            terminating,
            codec,
            size_bytes,
        )
        result = self.instances.push(push, JAVA, 1, self.now_ms, MAX_BYTES)
        return result if isinstance(result, ErrorCode) else ErrorCode.NONE


def test_without_a_subscription_nothing_is_asked_for_every_five_minutes() -> None:
    instance = Clients().asked()
    assert (instance.metrics, instance.push_interval_ms) == ((), 300_000)


def test_subscriptions_that_match_are_merged() -> None:
    clients = Clients(
        {"metrics": "a.,b.", "interval.ms": "2000"},
        {"metrics": "b.,c.", "interval.ms": "1000", "match": "client_id=mi.e"},
        {"metrics": "d.", "interval.ms": "100", "match": "client_id=min"},
        {"metrics": "e.", "interval.ms": "100", "match": "client_id=mine,client_software_name=x"},
        {"metrics": "f.", "interval.ms": "100", "match": "client_source_port=1"},
    )
    instance = clients.asked()
    assert (instance.metrics, instance.push_interval_ms) == (("a.", "b.", "c."), 1000)


def test_a_subscription_to_all_metrics_hides_the_others() -> None:
    assert Clients({"metrics": "a."}, {"metrics": "*,b."}).asked().metrics == ("*",)


def test_a_subscription_can_name_the_instance() -> None:
    clients = Clients({"metrics": "a.", "match": "client_instance_id=AAAAAAAAAAAAAAAAAAAAZA"})
    assert clients.asked().metrics == ("a.",)
    assert clients.asked().metrics == ()


def test_the_subscription_id_changes_with_its_contents_and_the_instance() -> None:
    clients = Clients({"metrics": "a."})
    first, second = clients.asked(), clients.asked()
    clients.subscribe({"metrics": "b."})
    third = clients.asked(first.instance_id)
    clients.subscribe({"metrics": "b.", "interval.ms": "1000"})
    fourth = clients.asked(first.instance_id)
    clients.subscribe({"metrics": "a."})
    again = clients.asked(first.instance_id)
    ids = {one.subscription_id for one in (first, second, third, fourth)}
    assert len(ids) == 4
    assert again.subscription_id == first.subscription_id
    assert all(-(2**31) <= one < 2**31 for one in ids)


def test_a_client_asks_once_in_an_interval_unless_its_subscription_changes() -> None:
    clients = Clients({"metrics": "a.", "interval.ms": "1000"})
    instance = clients.asked()
    clients.now_ms += 999
    assert clients.ask(instance.instance_id) == THROTTLED
    clients.subscribe({"metrics": "b.", "interval.ms": "1000"})
    assert clients.asked(instance.instance_id).metrics == ("b.",)
    clients.now_ms += 1000
    assert isinstance(clients.ask(instance.instance_id), ClientInstance)
    assert clients.instances.throttled == 1


def test_a_client_pushes_at_once_and_then_once_in_an_interval() -> None:
    clients = Clients({"metrics": "a.", "interval.ms": "1000"})
    instance = clients.asked()
    assert clients.push(instance) == ErrorCode.NONE
    clients.now_ms += 999
    assert clients.push(instance) == THROTTLED
    clients.now_ms += 1
    assert clients.push(instance) == ErrorCode.NONE


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"subscription_id": 7}, UNKNOWN_ID),
        ({"codec": 5}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"codec": -1}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    ],
)
def test_a_client_whose_push_was_wrong_may_ask_again(
    wrong: Mapping[str, int], error: ErrorCode
) -> None:
    clients = Clients({"metrics": "a."})
    instance = clients.asked()
    assert clients.push(instance, **wrong) == error  # type: ignore[arg-type]
    assert isinstance(clients.ask(instance.instance_id), ClientInstance)
    assert clients.ask(instance.instance_id) == THROTTLED


def test_a_push_has_a_largest_size() -> None:
    clients = Clients({"metrics": "a.", "interval.ms": "100"})
    instance = clients.asked()
    assert clients.push(instance, size_bytes=MAX_BYTES, codec=GZIP) == ErrorCode.NONE
    clients.now_ms += 100
    too_large = clients.push(instance, size_bytes=MAX_BYTES + 1)
    assert too_large == ErrorCode.TELEMETRY_TOO_LARGE
    assert clients.ask(instance.instance_id) == THROTTLED


def test_the_last_push_comes_at_any_time_and_is_the_last() -> None:
    clients = Clients({"metrics": "a.", "interval.ms": "1000"})
    instance = clients.asked()
    assert clients.push(instance) == ErrorCode.NONE
    assert clients.push(instance, terminating=True) == ErrorCode.NONE
    assert clients.push(instance, terminating=True) == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("number", [0, 1])
def test_reserved_ids_cannot_push(number: int) -> None:
    push = Push(UUID(int=number), 1, False, NONE, 0)
    instances = ClientInstances()
    assert instances.push(push, JAVA, 1, 0, MAX_BYTES) == ErrorCode.INVALID_REQUEST
    without_id = push._replace(instance_id=None)
    assert instances.push(without_id, JAVA, 1, 0, MAX_BYTES) == ErrorCode.INVALID_REQUEST
    assert len(instances) == 0


def test_an_instance_is_forgotten_with_its_connection_and_after_three_intervals() -> None:
    clients = Clients({"metrics": "a.", "interval.ms": "50000"})
    first, second = clients.asked(connection=1), clients.asked(connection=2)
    clients.instances.disconnected(1)
    clients.instances.disconnected(1)
    assert len(clients.instances) == 1
    assert clients.ask(second.instance_id) == THROTTLED
    assert isinstance(clients.ask(first.instance_id), ClientInstance)
    clients.now_ms += 150_000
    assert clients.asked(second.instance_id) is not second


def test_the_instance_that_was_not_used_for_longest_makes_room() -> None:
    clients = Clients()
    first, second = clients.asked(), clients.asked()
    assert clients.ask(first.instance_id) == THROTTLED
    for _ in range(MAX_CLIENT_INSTANCES - 1):
        clients.asked()
    assert len(clients.instances) == MAX_CLIENT_INSTANCES
    assert clients.ask(first.instance_id) == THROTTLED
    assert isinstance(clients.ask(second.instance_id), ClientInstance)
