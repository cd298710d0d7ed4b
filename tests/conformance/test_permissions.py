"""The matrix of permissions (`permissions.py`): every API with every ACL that matters, one raw
request each, to Apache Kafka with its StandardAuthorizer and to headrace. Both answer the same.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest

import headrace
from headrace.handlers import APIS
from headrace.net.api import Each, Need, Rule, Whole
from headrace.protocol.authorized_operations import Operation
from headrace.protocol.errors import ErrorCode
from headrace.security.acls import PatternType, Permission, ResourceType
from tests.conformance.permissions import (
    CONSUMERS,
    FETCHERS,
    GROUP,
    OFFSETS,
    ONE,
    ROWS,
    SHARERS,
    STREAMS,
    TWO,
    TX,
    Case,
    acl_filter,
    cases,
    member_id,
)
from tests.conformance.streams import heartbeat, subtopology
from tests.conformance.two_brokers import ASK_AGAIN, CLOSED, Side, codes_in
from tests.conformance.world import World
from tests.peer import KafkaPeer
from tests.support import COMMON_CONFIGS, free_port_pair, wait_until
from tests.wire_client import Connection

pytestmark = [pytest.mark.java, pytest.mark.slow]

CASES = list(cases())
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
CONFIGS = {
    **COMMON_CONFIGS,
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:ANONYMOUS",
    "group.coordinator.rebalance.protocols": "classic,consumer,streams",
    "transaction.max.timeout.ms": "900000",
}
PATIENCE_S = 10
_MADE_UP = ("assignment_epoch", "cluster_id", "finalized_features", "group_epoch", "member_epoch")
"""Fields that depend on the broker, or on the time that its groups took."""
SHARE_FETCH = 78
"""Its answers are compared where they have errors: Kafka leaves out partitions that the fetch of
another member has locked.
"""
CREATES = (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
"""The errors of a topic that is created by Metadata: Kafka describes it only when asked again."""
_KEPT = (
    "name",
    "topic",
    "topic_id",
    "group_id",
    "partition",
    "partition_index",
    "index",
    "key",
    "status_code",
    "status_detail",
)


# --- the two brokers, each with a way to be a user ---


class Matrix(Side):
    """A broker with users: `login` returns a connection of one of them."""

    def __init__(self, world: World, login: Callable[[str], Connection]) -> None:
        super().__init__(world, prefix="mx-")
        self.login = login

    def answer_to(self, case: Case) -> Any:
        """Return the answer to the request of a case, as its user gets it."""
        connection = self.login(case.user)
        fields = self.outward(case.fields)
        until = time.monotonic() + PATIENCE_S
        try:
            while True:
                try:
                    answer = connection.ask(case.row.api_key, case.row.version, **fields)
                except (AssertionError, ConnectionError):
                    return CLOSED
                plain = self.plain(answer)
                if not ASK_AGAIN & set(codes_in(plain)) or time.monotonic() > until:
                    if case.fields.get("allow_auto_topic_creation"):
                        return [one.error_code in CREATES for one in answer.topics]
                    if case.row.only_codes:
                        plain = codes_only(plain)
                    if case.row.api_key == SHARE_FETCH:
                        plain["responses"] = [
                            one for one in plain["responses"] if any(codes_in(one))
                        ]
                    return {**plain, "messages": set(messages_in(answer))}
                time.sleep(0.05)
        finally:
            connection.close()

    def plain(self, value: Any) -> Any:
        if isinstance(value, list | tuple):
            value = [one for one in value if _is_ours(one)]
        return super().plain(value)

    def _plain_field(self, name: str, value: Any) -> Any:
        if name in _MADE_UP:
            return None
        if name == "topics" and value and hasattr(value[0], "topic_config_error_code"):
            # Kafka makes up an id where a creation is only validated.
            value = [dataclasses.replace(one, topic_id=None) for one in value]
        return super()._plain_field(name, value)


def _is_ours(one: Any) -> bool:
    """Return whether an item of an answer is about the matrix, and not about another topic."""
    name = getattr(one, "name", None)
    return not isinstance(name, str) or name.startswith("mx") or not hasattr(one, "partitions")


def messages_in(answer: Any) -> Iterator[str]:
    """Yield the messages of an answer about permissions."""
    if dataclasses.is_dataclass(answer):
        message = getattr(answer, "error_message", None)
        if message is not None and "uthoriz" in message:
            yield message
        for field in dataclasses.fields(answer):
            yield from messages_in(getattr(answer, field.name))
    elif isinstance(answer, tuple):
        for one in answer:
            yield from messages_in(one)


def codes_only(answer: Any) -> Any:
    """Return the names and errors of an answer alone."""
    if isinstance(answer, dict):
        kept = {}
        for name, value in answer.items():
            if name.endswith("error_code") or (name in _KEPT and value is not None):
                kept[name] = value
            elif isinstance(value, list) and name not in ("configs", "synonyms", "api_keys"):
                kept[name] = codes_only(value)
        return kept
    if isinstance(answer, list):
        return [codes_only(one) for one in answer if isinstance(one, dict)]
    return answer


USERS = " ".join(f'user_{case.user}="x"' for case in CASES)
SASL = {
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        f"org.apache.kafka.common.security.plain.PlainLoginModule required {USERS};"
    ),
}
"""A user for each case, whose password is x. Clients of the listener PLAINTEXT are super users."""


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Matrix]:
    peer = KafkaPeer(tmp_path_factory.mktemp("permissions"), heap="512m")
    secure = free_port_pair(peer.port)
    advertised = f"PLAINTEXT://127.0.0.1:{peer.port},SASL_PLAINTEXT://127.0.0.1:{secure}"
    peer.configs = {
        **CONFIGS,
        **SASL,
        "listeners": f"{advertised},CONTROLLER://127.0.0.1:{peer.port + 1}",
        "advertised.listeners": advertised,
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT"
        ),
    }
    with peer:
        yield from prepared(peer.bootstrap_servers, f"127.0.0.1:{secure}", "kafka")


@pytest.fixture(scope="module")
def beside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Matrix]:
    listeners = "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0"
    configs = {**CONFIGS, **SASL, "listeners": listeners}
    with headrace.Broker(tmp_path_factory.mktemp("permissions"), configs) as broker:
        secure = broker.listeners["SASL_PLAINTEXT"]
        yield from prepared(broker.bootstrap_servers, secure, "headrace")


def prepared(bootstrap_servers: str, secure: str, target: str) -> Iterator[Matrix]:
    """Yield a broker that has what the cases need.

    :param secure: the address where clients log in
    """

    def login(user: str) -> Connection:
        connection = Connection(secure)
        assert connection.ask(17, 1, mechanism="PLAIN").error_code == 0
        assert connection.ask(36, 1, auth_bytes=f"\0{user}\0x".encode()).error_code == 0
        return connection

    world = World(bootstrap_servers, target)
    side = Matrix(world, login)
    prepare(side)
    yield side
    world.close()


# --- what they have before the first case ---


def prepare(side: Matrix) -> None:
    """Create topics, groups, a transaction, and the ACLs of all cases."""
    world = side.world
    world.warm_up()
    assert world.find_coordinator(TX, 1)[0] == "OK"
    create_acls(world, CASES)
    fresh = [
        f"mx-{case.number}-{name}"
        for name in ("fresh", "named")
        for case in CASES
        if case.row.needs[:1] == [f"DELETE TOPIC mx-{{n}}-{name}"]
    ]
    for name in (ONE, TWO, *fresh):
        side.make(name, 1)
    topics = [{"name": name, "partitions": OFFSETS} for name in (ONE, TWO)]
    side.ask(
        8,
        9,
        group_id=GROUP,
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        topics=topics,
    )
    partitions = [{"partition_index": 0, "start_offset": 0}]
    altered = [{"topic_name": name, "partitions": partitions} for name in (ONE, TWO)]
    assert side.ask(91, 0, group_id="mx-emptied", topics=altered)["error_code"] == 0
    begin_transaction(side)
    join(side, 68, CONSUMERS, rebalance_timeout=60_000, topic_partitions=[])
    join(side, 76, SHARERS)
    join(side, 76, FETCHERS)
    topology = {"epoch": 0, "subtopologies": [subtopology("0", ONE, TWO)]}
    fields = heartbeat(STREAMS, member_id(-1), 0, topology=topology)
    assert side.ask(88, 0, **fields)["error_code"] == 0


def begin_transaction(side: Matrix) -> None:
    """Leave a transaction open, with both topics in it."""
    connection = side.world.connection
    producer = side.world.ask(
        22, 4, transactional_id=TX, transaction_timeout=900_000, producer_id=-1, producer_epoch=-1
    )
    assert producer.error_code == 0, producer
    side.number(producer.producer_id)

    def added() -> bool:
        answer = connection.ask(
            24,
            3,
            v3_and_below_transactional_id=TX,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.producer_epoch,
            v3_and_below_topics=[{"name": name, "partitions": [0]} for name in (ONE, TWO)],
        )
        return set(codes_in(side.plain(answer))) == {0}

    wait_until(added, PATIENCE_S, "the partitions in the transaction")


def join(side: Matrix, api_key: int, group_id: str, **fields: Any) -> None:
    """Let a member join a group, and wait for its assignment of both topics."""
    epoch = 0

    def assigned() -> bool:
        nonlocal epoch
        asked = {
            "group_id": group_id,
            "member_id": member_id(-1),
            "member_epoch": epoch,
            "rack_id": None,
            "subscribed_topic_names": [ONE, TWO],
            **fields,
        }
        if api_key == 68:
            asked |= {
                "instance_id": None,
                "server_assignor": None,
                "subscribed_topic_regex": None,
            }
        answer = side.world.connection.ask(api_key, 1, **asked)
        assert answer.error_code == 0, answer
        epoch = answer.member_epoch
        assignment = answer.assignment
        return assignment is not None and len(assignment.topic_partitions) == 2

    wait_until(assigned, PATIENCE_S, "an assignment", interval_s=0.2)


def create_acls(world: World, wanted: Sequence[Case]) -> None:
    """Create the ACLs of all cases, and wait until they are in effect."""
    creations = [
        {
            "resource_type": int(ResourceType[resource_type]),
            "resource_name": name,
            "resource_pattern_type": int(PatternType[pattern]),
            "principal": f"User:{case.user}",
            "host": "*",
            "operation": int(Operation[operation]),
            "permission_type": int(Permission[permission]),
        }
        for case in wanted
        for permission, pattern, operation, resource_type, name in map(str.split, case.acls)
    ]
    for first in range(0, len(creations), 500):
        answer = world.connection.ask(30, 3, creations=creations[first : first + 500])
        assert {one.error_code for one in answer.results} == {0}, answer
    count = len({tuple(one.values()) for one in creations})

    def created() -> bool:
        found = world.connection.ask(
            29,
            3,
            resource_type_filter=1,
            resource_name_filter=None,
            pattern_type_filter=1,
            principal_filter=None,
            host_filter=None,
            operation=1,
            permission_type=1,
        )
        return sum(len(one.acls) for one in found.resources) == count

    wait_until(created, PATIENCE_S, "the ACLs")


# --- the matrix ---


@pytest.fixture(scope="module")
def answers(kafka: Matrix, beside: Matrix) -> Mapping[int, tuple[Any, Any]]:
    """The answers of both to each case, by its number. All of one broker come first, while the
    sessions of its members last.
    """
    found = [[side.answer_to(case) for case in CASES] for side in (kafka, beside)]
    return dict(enumerate(zip(*found, strict=True)))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_both_answer_the_same(case: Case, answers: Mapping[int, tuple[Any, Any]]) -> None:
    expected, answer = answers[case.number]
    assert answer == expected


def test_a_regular_expression_matches_what_a_member_may_describe(
    kafka: Matrix, beside: Matrix
) -> None:
    """The user of a case that may describe one of the two topics."""
    (case,) = (
        one
        for one in CASES
        if one.row.api_key == 68 and one.title.endswith(f"all but DESCRIBE TOPIC {TWO}")
    )

    def assigned(side: Matrix) -> list[str]:
        connection, epoch = side.login(case.user), 0
        regex = {"subscribed_topic_names": [], "subscribed_topic_regex": "mx-(one|two)"}

        def topics() -> list[str] | None:
            nonlocal epoch
            asked = {**case.fields, **regex, "member_epoch": epoch}
            answer = connection.ask(68, 1, **asked)
            assert answer.error_code == 0, answer
            epoch = answer.member_epoch
            found = answer.assignment.topic_partitions if answer.assignment else ()
            return [side.plain(one.topic_id) for one in found] or None

        return wait_until(topics, PATIENCE_S, "an assignment", interval_s=0.5)

    assert assigned(kafka) == assigned(beside) == [ONE]


@pytest.mark.parametrize("zero", ["resource_type_filter", "operation", "permission_type"])
def test_unknown_elements_of_acls_close_the_connection(
    kafka: Matrix, beside: Matrix, zero: str
) -> None:
    for side in (kafka, beside):
        with pytest.raises((AssertionError, ConnectionError)):
            side.world.connect().ask(29, 3, **{**acl_filter("mx-none"), zero: 0})


def test_every_api_is_in_the_matrix() -> None:
    assert {row.api_key for row in ROWS} == APIS.keys()


def needs_of(rule: Rule) -> Iterator[Need]:
    """Yield all permissions that a rule names."""
    if isinstance(rule, Whole):
        yield from rule.alternatives
        return
    of_configs = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
    for kind in of_configs if rule.kind is None else (rule.kind,):
        yield rule.operation, kind
    if isinstance(rule, Each) and rule.unless is not None:
        yield rule.unless, ResourceType.CLUSTER


def test_every_permission_is_in_the_matrix() -> None:
    """Each operation on each type of resource that an API declares has a row that needs it."""
    for api in APIS.values():
        needs = (need for rule in api.rules for need in needs_of(rule))
        declared = {(operation.name, kind.name) for operation, kind in needs}
        tested = {
            tuple(need.split()[:2]) for row in ROWS if row.api_key == api.key for need in row.needs
        }
        assert declared <= tested, api.name
