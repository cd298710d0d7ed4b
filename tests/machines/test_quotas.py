"""The machine of client quotas: precedence, shared sensors, expiry; by examples and beside a naive
model.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headrace.security import quotas as quotas_module
from headrace.security.quota_entities import (
    CLIENT_ID,
    CONNECTION,
    FETCH,
    IP,
    MUTATION,
    PRODUCE,
    USER,
    Entity,
    entity_of,
)
from headrace.security.quotas import ClientQuotas, Limit
from headrace.security.rates import Rate, TokenBucket, Windows

WINDOWS = Windows(samples=3, size_ms=1000)
SPAN_MS = 3000


def machine() -> ClientQuotas:
    return ClientQuotas(WINDOWS, WINDOWS)


def entity(user: str | None = "", client_id: str | None = "") -> Entity:
    """Return an entity; "" stands for a type that it does not have."""
    names = {USER: user, CLIENT_ID: client_id}
    return entity_of({kind: name for kind, name in names.items() if name != ""})


PRECEDENCE = [
    entity("ann", "app"),
    entity("ann", None),
    entity("ann"),
    entity(None, "app"),
    entity(None, None),
    entity(None),
    entity("", "app"),
    entity("", None),
]


def test_the_most_specific_quota_holds() -> None:
    quotas = machine()
    for number, one in reversed(list(enumerate(PRECEDENCE, 1))):
        quotas.alter(one, {PRODUCE: float(number)})
        limit = quotas.limit_of(PRODUCE, "ann", "app")
        assert limit is not None
        assert limit.value == number
    for number, one in enumerate(PRECEDENCE, 1):
        limit = quotas.limit_of(PRODUCE, "ann", "app")
        assert limit is not None
        assert limit.value == number
        quotas.alter(one, {PRODUCE: None})
    assert quotas.limit_of(PRODUCE, "ann", "app") is None
    assert quotas.limit_of(PRODUCE, "ann", "") is None
    assert quotas.entities == {}


def test_each_key_has_a_precedence_of_its_own() -> None:
    quotas = machine()
    quotas.alter(entity("ann"), {FETCH: 5.0})
    quotas.alter(entity("", "app"), {PRODUCE: 7.0})
    assert quotas.limit_of(PRODUCE, "ann", "app") == Limit(7.0, "", "app")
    assert quotas.limit_of(FETCH, "ann", "app") == Limit(5.0, "ann", "")


def test_a_client_without_id_has_the_quotas_of_its_user_only() -> None:
    quotas = machine()
    quotas.alter(entity("", None), {PRODUCE: 1.0})
    quotas.alter(entity(None, None), {PRODUCE: 2.0})
    assert quotas.limit_of(PRODUCE, "ann", "") is None
    quotas.alter(entity(None), {PRODUCE: 3.0})
    assert quotas.limit_of(PRODUCE, "ann", "") == Limit(3.0, "ann", "")


def test_all_clients_of_a_user_share_its_quota() -> None:
    quotas = machine()
    quotas.alter(entity("ann"), {PRODUCE: 100.0})
    first, second = (quotas.limit_of(PRODUCE, "ann", one) for one in ("a", "b"))
    assert first is not None
    assert second is not None
    assert quotas.charge(PRODUCE, first, 200, 0) == 0
    assert quotas.charge(PRODUCE, second, 100, 0) == 1000


def test_users_do_not_share_the_default_quota() -> None:
    quotas = machine()
    quotas.alter(entity(None), {PRODUCE: 100.0})
    ann, bob = (quotas.limit_of(PRODUCE, one, "app") for one in ("ann", "bob"))
    assert ann is not None
    assert bob is not None
    assert quotas.charge(PRODUCE, ann, 300, 0) == 1000
    assert quotas.charge(PRODUCE, bob, 200, 0) == 0


def test_addresses_have_names() -> None:
    quotas = machine()
    quotas.alter(entity_of({IP: "localhost"}), {CONNECTION: 5.0})
    assert quotas.limit_of_address("127.0.0.1") is None
    quotas.hosts["127.0.0.1"] = "localhost"
    assert quotas.limit_of_address("127.0.0.1") == Limit(5.0, "", "127.0.0.1")
    quotas.alter(entity_of({IP: None}), {CONNECTION: 9.0})
    assert quotas.limit_of_address("10.0.0.1") == Limit(9.0, "", "10.0.0.1")


def test_sensors_of_clients_that_are_gone_are_deleted() -> None:
    quotas = machine()
    quotas.alter(entity("", None), {PRODUCE: 1.0, MUTATION: 1.0})
    most = 0
    for number in range(10_000):
        for key in (PRODUCE, MUTATION):
            limit = quotas.limit_of(key, "ann", f"client-{number}")
            assert limit is not None
            quotas.charge(key, limit, 1, now_ms=number)
        most = max(most, len(quotas))
    assert most <= 2 * SPAN_MS + 4
    for number in range(4_000):  # one client that stays is enough for all others to be deleted
        limit = quotas.limit_of(PRODUCE, "ann", "last")
        assert limit is not None
        quotas.charge(PRODUCE, limit, 0, now_ms=20_000 + number)
    assert len(quotas) <= 2


def test_the_number_of_sensors_is_bounded() -> None:
    quotas = machine()
    quotas.alter(entity("", None), {PRODUCE: 1.0})
    for number in range(quotas_module.MAX_QUOTA_SENSORS + 50):
        quotas.charge(PRODUCE, Limit(1.0, "", str(number)), 1, now_ms=0)
    assert len(quotas) == quotas_module.MAX_QUOTA_SENSORS


def test_long_client_ids_with_a_default_quota_are_told_apart_by_their_beginning() -> None:
    quotas = machine()
    named, long = "n" * 32_000, "x" * 32_000
    quotas.alter(entity("", None), {PRODUCE: 1.0})
    quotas.alter(entity("", named), {PRODUCE: 2.0})
    for number in range(50):
        limit = quotas.limit_of(PRODUCE, "ann", f"{long}{number}")
        assert limit is not None
        quotas.charge(PRODUCE, limit, 1, now_ms=0)
        assert len(limit.client_id) < 300
    assert len(quotas) == 1
    assert quotas.limit_of(PRODUCE, "ann", named) == Limit(2.0, "", named)


def test_without_quotas_nothing_is_remembered() -> None:
    quotas = machine()
    quotas.alter(entity("ann"), {PRODUCE: 1.0, FETCH: 1.0})
    quotas.charge(PRODUCE, Limit(1.0, "ann", ""), 1, 0)
    quotas.charge(FETCH, Limit(1.0, "ann", ""), 1, 0)
    quotas.alter(entity("ann"), {PRODUCE: None})
    assert len(quotas) == 1
    quotas.alter(entity("ann"), {FETCH: None})
    assert len(quotas) == 0


NAMES = st.sampled_from(["ann", "bob", None, ""])
USERS, CLIENTS = st.sampled_from(["ann", "bob", "eve"]), st.sampled_from(["ann", "app", ""])
KEYS = st.sampled_from([PRODUCE, FETCH, MUTATION])
VALUES = st.sampled_from([1.0, 10.0, 1000.0, None])


class QuotasBesideModel(RuleBasedStateMachine):
    """The machine beside a model that forgets no sensor and looks at each entity for each
    decision.
    """

    def __init__(self) -> None:
        super().__init__()
        self.quotas = machine()
        self.values: dict[tuple[str, Entity], float] = {}
        self.sensors: dict[tuple[str, str, str], Rate | TokenBucket] = {}
        self.now_ms = 0

    @rule(user=NAMES, client_id=NAMES, key=KEYS, value=VALUES)
    def alter(self, user: str | None, client_id: str | None, key: str, value: float | None) -> None:
        one = entity(user, client_id)
        if not one:
            return
        if key == MUTATION and value is not None:
            value = 10.0  # a bucket that was deleted is as full as that of a new limit
        self.quotas.alter(one, {key: value})
        if value is None:
            self.values.pop((key, one), None)
        else:
            self.values[key, one] = value
        if not any(of_key == key for of_key, _ in self.values):
            self.sensors = {name: kept for name, kept in self.sensors.items() if name[0] != key}

    @rule(elapsed_ms=st.integers(0, 2 * SPAN_MS))
    def wait(self, elapsed_ms: int) -> None:
        self.now_ms += elapsed_ms

    @rule(user=USERS, client_id=CLIENTS, key=KEYS, amount=st.integers(0, 5000))
    def use(self, user: str, client_id: str, key: str, amount: int) -> None:
        limit = self.quotas.limit_of(key, user, client_id)
        assert limit == self.expected_limit(key, user, client_id)
        if limit is None:
            return
        name = (key, limit.user, limit.client_id)
        if name not in self.sensors:
            self.sensors[name] = TokenBucket(WINDOWS) if key == MUTATION else Rate(WINDOWS)
        expected = self.sensors[name].charge(amount, limit.value, self.now_ms)
        assert self.quotas.charge(key, limit, amount, self.now_ms) == expected

    def expected_limit(self, key: str, user: str, client_id: str) -> Limit | None:
        candidates: list[tuple[int, Limit]] = []
        for (of_key, one), value in self.values.items():
            names = dict(one)
            is_of_user = USER not in names or names[USER] in (user, None)
            is_of_client = CLIENT_ID not in names or (
                client_id != "" and names[CLIENT_ID] in (client_id, None)
            )
            if of_key == key and is_of_user and is_of_client:
                # first users by name, then all users, then none; among them the same for clients
                rank = [
                    2 if kind not in names else int(names[kind] is None)
                    for kind in (USER, CLIENT_ID)
                ]
                limit = Limit(
                    value, user if USER in names else "", client_id if CLIENT_ID in names else ""
                )
                candidates.append((3 * rank[0] + rank[1], limit))
        return min(candidates)[1] if candidates else None

    @invariant()
    def no_sensor_is_without_a_client(self) -> None:
        assert len(self.quotas) <= len(self.sensors)


TestQuotasBesideModel = QuotasBesideModel.TestCase
TestQuotasBesideModel.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
