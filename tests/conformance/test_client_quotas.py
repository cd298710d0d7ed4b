"""Client quotas (KIP-124, KIP-219, KIP-546, KIP-599, KIP-612): their entities, and the throttle
times and waits of clients that exceed them. Most limits are so low that a first request exceeds
them.
"""

from __future__ import annotations

import itertools
import math
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from headrace.protocol.errors import ErrorCode
from tests.conformance.streams import heartbeat, internal, subtopology
from tests.conformance.world import OK, Topic, World, outcome
from tests.support import unique, wait_until
from tests.wire_client import (
    Connection,
    answers,
    batch,
    encode,
    frame,
    receive_frame,
    request_header,
    request_message,
)

DESCRIBE, ALTER = 48, 49
PRODUCE, FETCH, METADATA, API_VERSIONS, CREATE_TOPICS, CREATE_PARTITIONS = 0, 1, 3, 18, 19, 37
STREAMS_HEARTBEAT, MISSING, UNKNOWN_TOPIC_OR_PARTITION = 88, 3, 3
PRODUCER, CONSUMER = "producer_byte_rate", "consumer_byte_rate"
REQUESTS, MUTATIONS = "request_percentage", "controller_mutation_rate"
CONNECTIONS = "connection_creation_rate"
EXACT, DEFAULT, ANY = 0, 1, 2
WINDOW_MS = 10_000
"""What a rate is measured over at first: all samples but one, by default."""

Entity = Mapping[str, str | None]
Ops = Mapping[str, float | None] | Sequence[tuple[str, float | None]]
Filter = tuple[str, int, str | None]

THROTTLED = "THROTTLING_QUOTA_EXCEEDED"
COMBINATION = (
    "INVALID_REQUEST: Invalid quota entity combination, IP entity shouldnot be combined with User "
    "or ClientId"
)
IP_FILTER = (
    "INVALID_REQUEST: Invalid entity filter component combination. IP filter component should not "
    "be used with user or clientId filter component."
)


class Quotas:
    """The client quotas of the broker under test. Those that are set here are removed again."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._set: dict[tuple[tuple[str, str | None], ...], set[str]] = {}

    def alter(self, entity: Entity, ops: Ops, *, version: int = 1, validate: bool = False) -> str:
        """Set quotas of an entity, None removes one; wait until they are in effect."""
        pairs = list(ops.items()) if isinstance(ops, Mapping) else list(ops)
        (entry,) = self.ask([(entity, pairs)], version=version, validate=validate)
        result = outcome(entry.error_code, entry.error_message)
        named = {one.entity_type: one.entity_name for one in entry.entity}
        assert named == dict(entity)
        if result == OK and not validate:
            self._set.setdefault(tuple(sorted(entity.items())), set()).update(dict(pairs))
            wait_until(lambda: self._has(entity, dict(pairs)), 30, "the quotas", interval_s=0.02)
        return result

    def ask(
        self,
        entries: Sequence[tuple[Entity, Sequence[tuple[str, float | None]]]],
        *,
        version: int = 1,
        validate: bool = False,
    ) -> Sequence[Any]:
        fields = [
            {
                "entity": [{"entity_type": kind, "entity_name": one} for kind, one in of.items()],
                "ops": [
                    {"key": key, "value": value or 0.0, "remove": value is None}
                    for key, value in ops
                ],
            }
            for of, ops in entries
        ]
        response = self.world.ask(ALTER, version, entries=fields, validate_only=validate)
        found: Sequence[Any] = response.entries
        return found

    def describe(
        self, *parts: Filter, strict: bool = False, version: int = 1
    ) -> str | dict[frozenset[tuple[str, str | None]], dict[str, float]]:
        components = [
            {"entity_type": kind, "match_type": how, "match": name} for kind, how, name in parts
        ]
        response = self.world.ask(DESCRIBE, version, components=components, strict=strict)
        if response.error_code:
            assert response.entries is None
            return outcome(response.error_code, response.error_message)
        assert response.error_message == ""
        return {
            frozenset((one.entity_type, one.entity_name) for one in entry.entity): {
                one.key: one.value for one in entry.values
            }
            for entry in response.entries
        }

    def of(self, entity: Entity) -> dict[str, float]:
        """Return the quotas of an entity."""
        parts = [(kind, DEFAULT if one is None else EXACT, one) for kind, one in entity.items()]
        found = self.describe(*parts, strict=True)
        assert isinstance(found, dict)
        return found.get(frozenset(entity.items()), {})

    def _has(self, entity: Entity, ops: Mapping[str, float | None]) -> bool:
        now = self.of(entity)
        return all(now.get(key) == value for key, value in ops.items())

    def clear(self) -> None:
        for entity, keys in self._set.items():
            self.alter(dict(entity), dict.fromkeys(keys))


@pytest.fixture
def quotas(world: World) -> Iterator[Quotas]:
    found = Quotas(world)
    yield found
    found.clear()


# --- entities ---


@pytest.mark.parametrize(
    ("entity", "ops", "expected"),
    [
        ({}, {PRODUCER: 1.0}, "INVALID_REQUEST: Invalid empty client quota entity"),
        ({"user": ""}, {PRODUCER: 1.0}, "INVALID_REQUEST: Empty user not supported"),
        (
            {"topic": "a"},
            {PRODUCER: 1.0},
            "INVALID_REQUEST: Unhandled client quota entity type: topic",
        ),
        ({"": "a"}, {PRODUCER: 1.0}, "INVALID_REQUEST: Unhandled client quota entity type: "),
        (
            {"User": "a"},
            {PRODUCER: 1.0},
            "INVALID_REQUEST: Unhandled client quota entity type: User",
        ),
        ({"user": "a", "ip": "127.0.0.1"}, {PRODUCER: 1.0}, COMBINATION),
        ({"client-id": "a", "ip": None}, {PRODUCER: 1.0}, COMBINATION),
        ({"user": "a"}, {"nonsense": 1.0}, "INVALID_REQUEST: Invalid configuration key nonsense"),
        ({"user": "a"}, {"": 1.0}, "INVALID_REQUEST: Invalid configuration key "),
        (
            {"user": "a"},
            {"SCRAM-SHA-256": 1.0},
            "INVALID_REQUEST: Invalid configuration key SCRAM-SHA-256",
        ),
        (
            {"user": "a"},
            {CONNECTIONS: 1.0},
            f"INVALID_REQUEST: Invalid configuration key {CONNECTIONS}",
        ),
        (
            {"ip": "127.0.0.1"},
            {PRODUCER: 1.0},
            f"INVALID_REQUEST: Invalid configuration key {PRODUCER}",
        ),
        (
            {"user": "a"},
            {PRODUCER: 0.0},
            f"INVALID_REQUEST: Quota {PRODUCER} must be greater than 0",
        ),
        (
            {"user": "a"},
            {MUTATIONS: -1.0},
            f"INVALID_REQUEST: Quota {MUTATIONS} must be greater than 0",
        ),
        (
            {"user": "a"},
            {PRODUCER: 1.5},
            f"INVALID_REQUEST: {PRODUCER} cannot be a fractional value.",
        ),
        (
            {"user": "a"},
            {PRODUCER: 0.9999995},
            f"INVALID_REQUEST: {PRODUCER} cannot be a fractional value.",
        ),
        (
            {"user": "a"},
            {CONSUMER: 1e19},
            f"INVALID_REQUEST: Proposed value for {CONSUMER} is too large for a LONG.",
        ),
        *(
            ({"user": "a"}, {key: value}, f"INVALID_REQUEST: Quota {key} must be a finite number")
            for key in (CONSUMER, REQUESTS)
            for value in (math.inf, -math.inf, math.nan)
        ),
        (
            {"ip": "127.0.0.1"},
            {CONNECTIONS: math.inf},
            f"INVALID_REQUEST: Quota {CONNECTIONS} must be a finite number",
        ),
        (
            {"ip": "127.0.0.1"},
            {CONNECTIONS: 0.5},
            f"INVALID_REQUEST: {CONNECTIONS} cannot be a fractional value.",
        ),
        (
            {"ip": "127.0.0.1"},
            {CONNECTIONS: 2.0**31},
            f"INVALID_REQUEST: Proposed value for {CONNECTIONS} is too large for an INT.",
        ),
        (
            {"ip": "1.2.3.4.5"},
            {CONNECTIONS: None},
            "INVALID_REQUEST: 1.2.3.4.5 is not a valid IP or resolvable host.",
        ),
        (
            {"user": "z"},
            {PRODUCER: 5.0, "nonsense": 1.0},
            "INVALID_REQUEST: Invalid configuration key nonsense",
        ),
        (
            {"user": "z"},
            [(PRODUCER, 5.0), (PRODUCER, None)],
            "INVALID_REQUEST: Ignoring duplicate entity ClientQuotaEntity(entries={user=z})",
        ),
        (
            {"client-id": None, "user": "z"},
            [(PRODUCER, 5.0), (PRODUCER, 6.0)],
            "INVALID_REQUEST: Ignoring duplicate entity "
            "ClientQuotaEntity(entries={client-id=null, user=z})",
        ),
        ({"user": "nobody"}, {PRODUCER: None}, OK),
        ({"user": "nobody"}, {"nonsense": None}, OK),
        ({"user": "nobody"}, {}, OK),
    ],
)
def test_what_cannot_be_set(quotas: Quotas, entity: Entity, ops: Ops, expected: str) -> None:
    assert quotas.alter(entity, ops) == expected
    assert quotas.of(entity) == {} if entity.keys() <= {"user", "client-id"} and entity else True


@pytest.mark.parametrize(
    ("entity", "values"),
    [
        ({"user": "{}"}, {PRODUCER: 2.0**63, CONSUMER: 5e-7, REQUESTS: 0.5, MUTATIONS: 1e30}),
        ({"user": "{}"}, {PRODUCER: 1.0000005, REQUESTS: 1e300}),
        ({"client-id": "{}"}, {PRODUCER: 1e9}),
        ({"user": "{}", "client-id": None}, {PRODUCER: 1e9}),
        ({"user": "{} a/b <default> é\n", "client-id": "<default>"}, {PRODUCER: 1e9}),
        ({"ip": "127.0.0.77"}, {CONNECTIONS: 2.0**31 - 1}),
        ({"ip": "localhost"}, {CONNECTIONS: 1e9}),
        ({"ip": "::77"}, {CONNECTIONS: 1e9}),
        ({"ip": None}, {CONNECTIONS: 1e9}),
    ],
)
@pytest.mark.parametrize("version", [0, 1])
def test_what_is_set_is_described(
    quotas: Quotas, entity: Entity, values: Mapping[str, float], version: int
) -> None:
    name = unique("q")
    entity = {kind: one if one is None else one.replace("{}", name) for kind, one in entity.items()}
    assert quotas.alter(entity, values, version=version, validate=True) == OK
    assert quotas.of(entity) == {}
    assert quotas.alter(entity, values, version=version) == OK
    assert quotas.of(entity) == values
    key = next(iter(values))
    assert quotas.alter(entity, {key: None}) == OK
    assert quotas.of(entity) == {one: values[one] for one in values if one != key}


def test_an_entity_that_is_named_twice_gets_the_first_values(quotas: Quotas) -> None:
    entity = {"user": unique("q")}
    entries = quotas.ask([(entity, [(PRODUCER, 5.0)]), (entity, [(CONSUMER, 6.0)])])
    text = f"ClientQuotaEntity(entries={{user={entity['user']}}})"
    assert [outcome(one.error_code, one.error_message) for one in entries] == [
        f"INVALID_REQUEST: Ignoring duplicate entity {text}"
    ]
    wait_until(lambda: quotas.of(entity) == {PRODUCER: 5.0}, 30, "the first value")
    quotas.alter(entity, {PRODUCER: None})


def test_the_other_entities_of_a_request_are_changed(quotas: Quotas) -> None:
    entity = {"user": unique("q")}
    entries = quotas.ask([({"user": ""}, []), (entity, [(PRODUCER, 5.0)])])
    assert {one.error_code for one in entries} == {ErrorCode.NONE, ErrorCode.INVALID_REQUEST}
    wait_until(lambda: quotas.of(entity) == {PRODUCER: 5.0}, 30, "the value")
    quotas.alter(entity, {PRODUCER: None})


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([("", EXACT, "a")], "INVALID_REQUEST: Invalid empty entity type."),
        ([("topic", EXACT, "a")], "UNSUPPORTED_VERSION: Unsupported entity type topic"),
        (
            [("user", EXACT, "a"), ("user", ANY, None)],
            "INVALID_REQUEST: Entity type user cannot appear more than once in the filter.",
        ),
        (
            [("user", EXACT, None)],
            "INVALID_REQUEST: Request specified MATCH_TYPE_EXACT, but set match string to null.",
        ),
        (
            [("user", DEFAULT, "a"), ("topic", EXACT, "a")],
            "INVALID_REQUEST: Request specified MATCH_TYPE_DEFAULT, but also specified a match "
            "string.",
        ),
        (
            [("user", ANY, "a")],
            "INVALID_REQUEST: Request specified MATCH_TYPE_SPECIFIED, but also specified a match "
            "string.",
        ),
        ([("user", 3, None)], "INVALID_REQUEST: Unknown match type 3"),
        ([("user", -1, "a")], "INVALID_REQUEST: Unknown match type -1"),
        ([("ip", ANY, None), ("user", ANY, None)], IP_FILTER),
        ([("client-id", EXACT, "c"), ("ip", DEFAULT, None)], IP_FILTER),
    ],
)
def test_filters_that_are_refused(quotas: Quotas, parts: Sequence[Filter], expected: str) -> None:
    assert quotas.describe(*parts) == expected


def test_filters(quotas: Quotas) -> None:
    name, app = unique("q"), unique("app")
    entities: list[Entity] = [
        {"user": name},
        {"user": name, "client-id": app},
        {"user": name, "client-id": None},
        {"client-id": app},
    ]
    for number, entity in enumerate(entities, 1):
        assert quotas.alter(entity, {PRODUCER: 1e9 + number}) == OK

    def matched(*parts: Filter, strict: bool = False) -> list[int]:
        found = quotas.describe(*parts, strict=strict)
        assert isinstance(found, dict)
        return [
            number
            for number, entity in enumerate(entities, 1)
            if frozenset(entity.items()) in found
        ]

    assert matched() == [1, 2, 3, 4]
    assert matched(strict=True) == []
    assert matched(("user", EXACT, name)) == [1, 2, 3]
    assert matched(("user", EXACT, name), strict=True) == [1]
    assert matched(("user", ANY, None), strict=True) == [1]
    assert matched(("client-id", ANY, None)) == [2, 3, 4]
    assert matched(("client-id", DEFAULT, None)) == [3]
    assert matched(("user", ANY, None), ("client-id", ANY, None), strict=True) == [2, 3]
    assert matched(("user", EXACT, name), ("client-id", EXACT, app)) == [2]
    assert matched(("user", EXACT, "")) == []


# --- throttling ---


class Client:
    """A client with a client id of its own, whose quotas can be set."""

    def __init__(self, quotas: Quotas, **values: float) -> None:
        self.quotas, self.client_id = quotas, unique("client")
        self._open: list[Connection] = []
        if values:
            assert quotas.alter({"client-id": self.client_id}, values) == OK
        self.connection = self.connect()

    def connect(self) -> Connection:
        address = self.quotas.world.bootstrap_servers
        self._open.append(Connection(address, timeout_s=60, client_id=self.client_id))
        return self._open[-1]

    def produce(
        self, topic: Topic, size: int, *, version: int = 9, acks: int = 1, on: int = 0
    ) -> tuple[int, int]:
        """Return the size of a Produce request, and its throttle time in milliseconds."""
        fields = {
            "acks": acks,
            "timeout": 1000,
            "transactional_id": None,
            "topic_data": [
                {
                    "name": topic.name,
                    "topic_id": topic.id,
                    "partition_data": [{"index": 0, "records": batch([b"x" * size])}],
                }
            ],
        }
        connection = self._open[on]
        request = request_message(PRODUCE, version, **fields)
        size_bytes = len(encode(request, 1, self.client_id)) - 4
        sent = connection.send_message(PRODUCE, version, **fields)
        if acks == 0:
            return size_bytes, 0
        response = connection.receive_message(sent)
        assert response.responses[0].partition_responses[0].error_code == 0
        return size_bytes, milliseconds(response)

    def fetch(
        self,
        topic: Topic,
        *,
        version: int = 12,
        session: tuple[int, int] = (0, -1),
        offset: int = 0,
        max_wait: int = 0,
    ) -> tuple[int, int, int]:
        """Return the bytes of records of a Fetch, its throttle time, and its session."""
        session_id, epoch = session
        partition = {
            "partition": 0,
            "current_leader_epoch": -1,
            "fetch_offset": offset,
            "last_fetched_epoch": -1,
            "log_start_offset": -1,
            "partition_max_bytes": 1 << 20,
        }
        asked = {"topic": topic.name, "topic_id": topic.id, "partitions": [partition]}
        response = self.connection.ask(
            FETCH,
            version,
            replica_id=-1,
            max_wait=max_wait,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=0,
            session_id=session_id,
            session_epoch=epoch,
            forgotten_topics_data=[],
            rack_id="",
            topics=[asked] if epoch <= 0 else [],
        )
        assert getattr(response, "error_code", 0) == 0
        size_bytes = sum(
            len(one.records or b"") for part in response.responses for one in part.partitions
        )
        return size_bytes, milliseconds(response), getattr(response, "session_id", 0)

    def create(
        self, *partitions: int, version: int = 7, validate: bool = False
    ) -> tuple[list[str], int]:
        """Return the errors of topics to create, and the throttle time."""
        topics = [
            {
                "name": unique(f"t{number}"),
                "num_partitions": count,
                "replication_factor": 1,
                "assignments": [],
                "configs": [],
            }
            for number, count in enumerate(partitions)
        ]
        response = self.connection.ask(
            CREATE_TOPICS, version, topics=topics, timeout=10_000, validate_only=validate
        )
        results = {one.name: outcome(one.error_code, one.error_message) for one in response.topics}
        return [results[str(one["name"])] for one in topics], milliseconds(response)

    def is_muted(self) -> bool:
        """Return whether the next request is not answered at once; it stays on its way."""
        self.connection.send_message(API_VERSIONS, 0)
        return not self.connection.has_response(0.3)

    def close(self) -> None:
        for one in self._open:
            one.close()


def milliseconds(response: Any) -> int:
    return round(response.throttle_time.total_seconds() * 1000)


def is_about(throttle_ms: int, expected_ms: float) -> bool:
    """Return whether a throttle time is the expected one, or less as the requests took time."""
    return 0 < throttle_ms <= expected_ms + 100


@pytest.mark.parametrize("version", [3, 8, 9, 13])
def test_produce_is_answered_and_then_the_client_is_muted(quotas: Quotas, version: int) -> None:
    topic, client = quotas.world.topic(), Client(quotas, producer_byte_rate=10.0)
    size, throttle_ms = client.produce(topic, 1000, version=version)
    assert throttle_ms == pytest.approx(size / 10 * 1000 - WINDOW_MS, abs=1)
    assert client.is_muted()
    assert topic.end_offset() == 1
    client.close()


def test_a_client_stays_muted_when_its_quota_is_removed(quotas: Quotas) -> None:
    topic, client = quotas.world.topic(), Client(quotas, producer_byte_rate=10.0)
    assert client.produce(topic, 1000)[1] > 60_000
    assert quotas.alter({"client-id": client.client_id}, {PRODUCER: None}) == OK
    assert client.is_muted()
    client.connect()
    assert client.produce(topic, 1000, on=1)[1] == 0
    client.close()


def test_the_connections_of_a_client_id_share_its_quota(quotas: Quotas) -> None:
    topic, client = quotas.world.topic(), Client(quotas, producer_byte_rate=1000.0)
    other = Client(quotas)
    client.connect()
    first, throttle_ms = client.produce(topic, 8000)
    assert throttle_ms == 0
    second, throttle_ms = client.produce(topic, 4000, on=1)
    assert is_about(throttle_ms, first + second - WINDOW_MS)
    assert not client.is_muted()
    assert other.produce(topic, 100_000)[1] == 0
    for one in (client, other):
        one.close()


def test_a_client_is_served_again_when_its_throttle_time_is_over(quotas: Quotas) -> None:
    topic, client = quotas.world.topic(), Client(quotas, producer_byte_rate=10_000.0)
    size, throttle_ms = client.produce(topic, 110_000)
    assert is_about(throttle_ms, size / 10 - WINDOW_MS)
    started = time.monotonic()
    assert client.connection.ask(API_VERSIONS, 0).error_code == 0
    assert time.monotonic() - started >= throttle_ms / 1000 - 0.3
    client.close()


def test_produce_without_answers_is_muted(quotas: Quotas) -> None:
    topic, client = quotas.world.topic(), Client(quotas, producer_byte_rate=10.0)
    client.produce(topic, 1000, acks=0)
    assert client.is_muted()
    client.close()


@pytest.mark.parametrize("version", [4, 12, 13])
def test_a_fetch_beyond_the_quota_gets_no_records(quotas: Quotas, version: int) -> None:
    topic, client = quotas.world.topic(), Client(quotas, consumer_byte_rate=100.0)
    Client(quotas).produce(topic, 2000)
    size, throttle_ms, _ = client.fetch(topic, version=version)
    assert size == 0
    assert 10_000 < throttle_ms < 13_000
    assert client.is_muted()
    client.close()


def test_a_fetch_reads_no_more_than_the_quota_allows_at_once(quotas: Quotas) -> None:
    topic, client = quotas.world.topic(), Client(quotas, consumer_byte_rate=1000.0)
    producer = Client(quotas)
    for _ in range(30):
        producer.produce(topic, 900)
    size, throttle_ms, _ = client.fetch(topic)
    if not size:  # Kafka cuts the last batch, and the rest of the answer exceeds the quota
        assert throttle_ms < 1000
        size, throttle_ms, _ = client.fetch(topic)
    assert throttle_ms == 0
    assert 8000 < size <= 10_000
    size, throttle_ms, _ = client.fetch(topic)
    assert size == 0
    assert throttle_ms > 5000
    client.close()


def test_what_was_not_sent_comes_later(quotas: Quotas) -> None:
    topic, client = quotas.world.topic(), Client(quotas)
    Client(quotas).produce(topic, 20_000)
    size, throttle_ms, session_id = client.fetch(topic, session=(0, 0), offset=1)
    assert (size, throttle_ms) == (0, 0)
    assert session_id
    Client(quotas).produce(topic, 20_000)
    assert quotas.alter({"client-id": client.client_id}, {CONSUMER: 1950.0}) == OK
    size, throttle_ms, again = client.fetch(topic, session=(session_id, 1))
    assert (size, again) == (0, session_id)
    assert 0 < throttle_ms < 2000
    assert quotas.alter({"client-id": client.client_id}, {CONSUMER: None}) == OK
    size, throttle_ms, again = client.fetch(topic, session=(session_id, 2))
    assert size > 20_000
    assert (throttle_ms, again) == (0, session_id)
    client.close()


def test_a_waiting_fetch_is_throttled_when_records_come(quotas: Quotas) -> None:
    topic, client = quotas.world.topic(), Client(quotas, consumer_byte_rate=100.0)
    client.connection.send_message(API_VERSIONS, 0)
    assert client.connection.receive() is not None
    producer = Client(quotas)
    size, throttle_ms, _ = client.fetch(topic, max_wait=100)
    assert (size, throttle_ms) == (0, 0)
    producer.produce(topic, 2000)
    size, throttle_ms, _ = client.fetch(topic, max_wait=20_000)
    assert size == 0
    assert throttle_ms > 5000
    client.close()


def test_requests_take_a_second_at_most(quotas: Quotas) -> None:
    client = Client(quotas, request_percentage=1e-7)
    topic = quotas.world.topic()
    versions = {"client_software_name": "x", "client_software_version": "1"}
    for version in (1, 3, 4):
        response = client.connection.ask(API_VERSIONS, version, **versions)
        assert milliseconds(response) == 1000
        assert len(response.api_keys) > 20
    assert milliseconds(client.connection.ask(3, 9, topics=[])) == 1000
    assert client.fetch(topic)[1] == 1000
    assert client.produce(topic, 10)[1] == 1000
    assert client.is_muted()
    client.close()


def test_offset_delete_has_its_throttle_time_after_the_error(quotas: Quotas) -> None:
    client = Client(quotas, request_percentage=1e-7)
    response = client.connection.ask(47, 0, group_id=unique("none"), topics=[])
    assert milliseconds(response) == 1000
    assert response.error_code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.NOT_COORDINATOR)
    client.close()


def test_topics_beyond_the_quota_are_refused(quotas: Quotas) -> None:
    client = Client(quotas, controller_mutation_rate=1.0)
    errors, throttle_ms = client.create(5, 5, 5, 5)
    assert sorted(errors) == [OK, OK, OK, THROTTLED]
    assert is_about(throttle_ms, 4000)
    client.close()


def test_older_clients_are_throttled_only(quotas: Quotas) -> None:
    client = Client(quotas, controller_mutation_rate=1.0)
    errors, throttle_ms = client.create(5, 5, 5, 5, version=5)
    assert errors == [OK] * 4
    assert is_about(throttle_ms, 9000)
    assert client.is_muted()
    client.close()


def test_validation_counts(quotas: Quotas) -> None:
    client = Client(quotas, controller_mutation_rate=1.0)
    results = [client.create(8, validate=True) for _ in range(3)]
    assert [errors for errors, _ in results] == [[OK], [OK], [THROTTLED]]
    assert [throttle_ms > 0 for _, throttle_ms in results] == [False, False, True]
    client.close()


def test_partitions_and_deletions_count(quotas: Quotas) -> None:
    client, topic = Client(quotas, controller_mutation_rate=1.0), quotas.world.topic()
    others = [quotas.world.topic() for _ in range(2)]

    def grow(count: int) -> tuple[str, bool]:
        response = client.connection.ask(
            CREATE_PARTITIONS,
            3,
            topics=[{"name": topic.name, "count": count, "assignments": None}],
            timeout=10_000,
            validate_only=False,
        )
        (result,) = response.results
        return outcome(result.error_code, result.error_message), milliseconds(response) > 0

    assert grow(25) == (OK, False)  # 13 more than the burst
    assert grow(26) == (THROTTLED, True)
    client.connection = client.connect()
    response = client.connection.ask(
        20, 6, topics=[{"name": one.name, "topic_id": None} for one in others], timeout=10_000
    )
    found = {outcome(one.error_code, one.error_message) for one in response.responses}
    assert found == {THROTTLED}
    assert milliseconds(response) > 0
    client.close()


# --- connections ---

_ADDRESSES = itertools.count(101)


def test_connections_of_an_address_beyond_its_rate_are_closed(quotas: Quotas) -> None:
    address = f"127.0.0.{next(_ADDRESSES)}"
    assert quotas.alter({"ip": address}, {CONNECTIONS: 1.0}) == OK
    host, port = quotas.world.bootstrap_servers.rsplit(":", 1)

    def is_served() -> bool:
        with socket.create_connection((host, int(port)), 30, source_address=(address, 0)) as sock:
            try:
                sock.sendall(frame(request_header(API_VERSIONS, 0, 7)))
                return receive_frame(sock) is not None
            except OSError:
                return False

    assert [is_served() for _ in range(12)] == [True] * 10 + [False] * 2
    assert answers(host, int(port))
    quotas.alter({"ip": address}, {CONNECTIONS: None})
    assert is_served()


def existing(world: World, *names: str) -> set[str]:
    """Return the topics that exist."""
    response = world.ask(
        METADATA,
        12,
        topics=[{"topic_id": None, "name": name} for name in names],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )
    return {one.name for one in response.topics if not one.error_code}


def test_automatic_creation_counts_and_throttles_nothing_else(quotas: Quotas) -> None:
    """Apache Kafka creates topics after the answer, headrace before it."""
    world, client = quotas.world, Client(quotas, controller_mutation_rate=0.01)
    names = [unique("t") for _ in range(3)]
    response = client.connection.ask(
        METADATA,
        12,
        topics=[{"topic_id": None, "name": name} for name in names],
        allow_auto_topic_creation=True,
        include_topic_authorized_operations=False,
    )
    assert milliseconds(response) == 0
    unknown = [one.name for one in response.topics if one.error_code]
    assert {one.error_code for one in response.topics} <= {0, UNKNOWN_TOPIC_OR_PARTITION}
    assert len(unknown) >= 2
    made = wait_until(lambda: existing(world, *names), 30, "a topic", interval_s=0.05)
    assert len(made) == 1
    errors, throttle_ms = client.create(1)
    assert errors == [THROTTLED]
    assert throttle_ms > 0
    assert existing(world, *names) == made
    client.close()


def test_internal_topics_of_streams_groups_count(quotas: Quotas) -> None:
    world, client = quotas.world, Client(quotas, controller_mutation_rate=0.01)
    source, group_id, member_id = world.topic().name, unique("g"), unique("m")
    changelogs = [internal(f"{group_id}-{name}-changelog") for name in "ab"]
    topology = {"epoch": 0, "subtopologies": [subtopology("0", source, changelogs=changelogs)]}

    def beat(epoch: int, **fields: Any) -> Any:
        answer = client.connection.ask(
            STREAMS_HEARTBEAT, 0, **heartbeat(group_id, member_id, epoch, **fields)
        )
        return None if answer.error_code else answer

    joined = wait_until(lambda: beat(0, topology=topology), 30, "the group", interval_s=0.05)
    assert milliseconds(joined) == 0
    names = [one["name"] for one in changelogs]
    made = wait_until(lambda: existing(world, *names), 30, "a topic", interval_s=0.05)
    (missing,) = set(names) - made
    epoch = joined.member_epoch

    def status() -> str | None:
        nonlocal epoch
        answer = beat(epoch)
        epoch = answer.member_epoch
        details = [one.status_detail for one in answer.status or () if one.status_code == MISSING]
        return details[0] if details and "Creation failed" in details[0] else None

    assert wait_until(status, 30, "the failure", interval_s=0.05) == (
        f"Internal topics are missing: {missing}; Creation failed: {missing} (The throttling quota "
        "has been exceeded.)."
    )
    assert existing(world, *names) == made
    assert client.create(1)[0] == [THROTTLED]
    client.close()
