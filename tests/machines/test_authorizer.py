"""The authorizer: examples, and a comparison with a naive model that looks at every ACL."""

from __future__ import annotations

import gc
import sys
from types import FrameType
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headrace.protocol.authorized_operations import Operation, bit_field
from headrace.protocol.time_slices import run_now
from headrace.security.acls import (
    Acl,
    AclFilter,
    PatternType,
    Permission,
    ResourceType,
    check_new,
    is_known,
)
from headrace.security.authorizer import MAX_CACHED_DECISIONS, Authorizer

ALICE, BOB, HOST = "User:alice", "User:bob", "10.0.0.1"
READ, WRITE, DESCRIBE, ALL = Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.ALL
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALLOW, DENY = Permission.ALLOW, Permission.DENY


def acl(
    name: str,
    operation: int = READ,
    permission: int = ALLOW,
    *,
    pattern_type: int = LITERAL,
    principal: str = ALICE,
    host: str = "*",
    resource_type: int = TOPIC,
) -> Acl:
    return Acl(resource_type, name, pattern_type, principal, host, operation, permission)


def may(acls: list[Acl], operation: int = READ, name: str = "orders", **more: bool) -> bool:
    authorizer = Authorizer(**more)
    authorizer.add(acls)
    return authorizer.allows(ALICE, HOST, operation, TOPIC, name)


# --- examples ---


def test_nothing_is_allowed_without_an_acl() -> None:
    assert not may([])
    assert not may([acl("others")])
    assert not may([acl("orders", principal=BOB)])
    assert not may([acl("orders", host="10.0.0.2")])
    assert not may([acl("orders", resource_type=GROUP)])


@pytest.mark.parametrize(
    "one",
    [
        acl("orders"),
        acl("orders", ALL),
        acl("*"),
        acl("ord", pattern_type=PREFIXED),
        acl("orders", pattern_type=PREFIXED),
        acl("orders", principal="User:*"),
        acl("orders", host=HOST),
    ],
)
def test_each_of_these_allows_and_a_deny_wins(one: Acl) -> None:
    assert may([one])
    assert not may([one, acl("o", READ, DENY, pattern_type=PREFIXED, principal="User:*")])
    assert not may([one, acl("*", ALL, DENY)])
    assert may([one, acl("orders", WRITE, DENY)])


def test_operations_imply_others_but_denials_do_not() -> None:
    for operation in (READ, WRITE, Operation.DELETE, Operation.ALTER):
        assert may([acl("orders", operation)], DESCRIBE)
        assert may([acl("orders", DESCRIBE), acl("orders", operation, DENY)], DESCRIBE)
    assert may([acl("orders", Operation.ALTER_CONFIGS)], Operation.DESCRIBE_CONFIGS)
    assert not may([acl("orders", DESCRIBE)], READ)
    assert not may([acl("orders", Operation.CREATE)], DESCRIBE)


def test_everyone_may_use_a_resource_without_acls_if_configured() -> None:
    assert may([], allow_without_acls=True)
    assert not may([acl("orders", principal=BOB)], allow_without_acls=True)
    assert not may([acl("*", principal=BOB)], allow_without_acls=True)
    assert may([acl("others")], allow_without_acls=True)
    authorizer = Authorizer(allow_without_acls=True)
    authorizer.add([acl("orders", principal=BOB)])
    authorizer.remove([acl("orders", principal=BOB)])
    assert authorizer.allows(ALICE, HOST, READ, TOPIC, "orders")


def test_long_names_are_not_remembered() -> None:
    authorizer = Authorizer()
    authorizer.add([acl("x" * 1000, pattern_type=PREFIXED)])
    name = "x" * 32_767
    references = sys.getrefcount(name)
    assert authorizer.allows(ALICE, HOST, READ, TOPIC, name)
    assert not authorizer.allows(ALICE, HOST, WRITE, TOPIC, name)
    assert sys.getrefcount(name) == references


def test_a_resource_without_a_name_is_not_any_resource() -> None:
    authorizer = Authorizer()
    authorizer.add([acl("orders", WRITE)])
    for _ in range(2):
        assert not authorizer.allows(ALICE, HOST, WRITE, TOPIC, "")
        assert authorizer.allows(ALICE, HOST, WRITE, TOPIC, None)


def test_super_users_may_do_everything() -> None:
    authorizer = Authorizer([ALICE])
    authorizer.add([acl("*", ALL, DENY)])
    assert authorizer.allows(ALICE, HOST, READ, TOPIC, "orders")
    assert authorizer.allows(ALICE, HOST, WRITE, TOPIC, None)
    assert not authorizer.allows(BOB, HOST, READ, TOPIC, "orders")


@pytest.mark.parametrize(
    ("acls", "allowed"),
    [
        ([], False),
        ([acl("a", WRITE)], True),
        ([acl("a", ALL)], True),
        ([acl("a", READ)], False),
        ([acl("*", WRITE)], True),
        ([acl("a", WRITE), acl("a", WRITE, DENY)], False),
        ([acl("a", WRITE), acl("b", WRITE, DENY)], True),
        ([acl("ab", WRITE), acl("a", WRITE, DENY, pattern_type=PREFIXED)], False),
        ([acl("a", WRITE, pattern_type=PREFIXED), acl("a", WRITE, DENY)], True),
        (
            [
                acl("ab", WRITE, pattern_type=PREFIXED),
                acl("a", ALL, DENY, pattern_type=PREFIXED),
            ],
            False,
        ),
        ([acl("a", WRITE), acl("*", WRITE, DENY)], False),
        ([acl("*", WRITE), acl("a", WRITE, DENY, pattern_type=PREFIXED)], True),
        ([acl("a", WRITE, principal="User:*"), acl("a", WRITE, DENY, host=HOST)], False),
    ],
)
def test_write_on_any_topic(acls: list[Acl], allowed: bool) -> None:
    authorizer = Authorizer()
    authorizer.add(acls)
    assert authorizer.allows(ALICE, HOST, WRITE, TOPIC, None) is allowed


def test_authorized_operations() -> None:
    authorizer = Authorizer()
    authorizer.add([acl("orders", READ), acl("ord", WRITE, DENY, pattern_type=PREFIXED)])
    assert authorizer.operations(ALICE, HOST, TOPIC, "orders") == bit_field(READ, DESCRIBE)
    assert authorizer.operations(BOB, HOST, TOPIC, "orders") == 0


def test_the_cache_is_bounded() -> None:
    authorizer = Authorizer()
    for number in range(MAX_CACHED_DECISIONS + 10):
        authorizer.allows(ALICE, HOST, READ, TOPIC, str(number))
    assert len(authorizer._decisions) <= MAX_CACHED_DECISIONS


def test_filters() -> None:
    exact = acl("orders")
    assert AclFilter().matches(exact)
    assert AclFilter(TOPIC, "orders", LITERAL).matches(exact)
    assert not AclFilter(GROUP, "orders", LITERAL).matches(exact)
    assert not AclFilter(TOPIC, "orders", PREFIXED).matches(exact)
    assert not AclFilter(TOPIC, "order", PatternType.MATCH).matches(exact)
    for matching in (acl("*"), acl("ord", pattern_type=PREFIXED), exact):
        assert AclFilter(TOPIC, "orders", PatternType.MATCH).matches(matching)
        assert AclFilter(TOPIC, "orders").matches(matching) is (matching == exact)
    assert not AclFilter(principal=BOB).matches(exact)
    assert not AclFilter(host=HOST).matches(exact)
    assert not AclFilter(operation=WRITE).matches(exact)
    assert not AclFilter(permission=DENY).matches(exact)


def test_acls_that_cannot_be_created() -> None:
    assert check_new(acl("orders")) is None
    for invalid in (
        acl(""),
        acl("orders", Operation.ANY),
        acl("orders", permission=Permission.ANY),
        acl("orders", pattern_type=PatternType.MATCH),
        acl("orders", resource_type=ResourceType.ANY),
        acl("orders", resource_type=ResourceType.CLUSTER),
        acl("orders", principal="alice"),
    ):
        assert check_new(invalid) is not None
    assert is_known(acl("orders"))
    assert not is_known(acl("orders", resource_type=0))
    assert not is_known(acl("orders", pattern_type=5))


def authorizer_of(acls: int) -> Authorizer:
    """Return an authorizer with ACLs whose prefixes have 240 lengths: an uncached decision looks up
    each of them.
    """
    authorizer = Authorizer()
    authorizer.add(
        [
            acl(
                f"{number % 240 * 'x'}{number:06}",
                READ if number % 2 else WRITE,
                DENY if number % 7 == 0 else ALLOW,
                pattern_type=PREFIXED if number % 3 else LITERAL,
                principal=f"User:{number % 1000}",
            )
            for number in range(acls)
        ]
    )
    assert len(authorizer.acls) == acls
    return authorizer


def steps_of(authorizer: Authorizer, name: str) -> int:
    """Return the number of bytecodes that a decision takes: a measure that no machine changes."""
    steps = 0

    def count(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal steps
        frame.f_trace_opcodes = True
        steps += event == "opcode"
        return count

    before = sys.gettrace()
    gc.disable()  # or the finalizers of other tests' objects count, too
    sys.settrace(count)
    try:
        authorizer.allows("User:5", HOST, READ, TOPIC, name)
    finally:
        sys.settrace(before)
        gc.enable()
    return steps


def test_a_decision_costs_the_same_with_a_hundred_thousand_acls() -> None:
    few, many = authorizer_of(1_000), authorizer_of(100_000)
    for number in range(3):
        name = f"{'x' * 200}{number}"
        assert steps_of(many, name) == steps_of(few, name) > 1_000
        assert steps_of(many, name) == steps_of(few, name) < 100  # cached


# --- the model ---

NAMES = st.sampled_from(["a", "ab", "abc", "b", "*"])
PRINCIPALS, HOSTS = st.sampled_from([ALICE, BOB, "User:*"]), st.sampled_from([HOST, "h2", "*"])
OPERATIONS = st.sampled_from([READ, WRITE, DESCRIBE, ALL, Operation.ALTER_CONFIGS])
ACLS = st.builds(
    Acl,
    resource_type=st.sampled_from([TOPIC, GROUP]),
    name=NAMES,
    pattern_type=st.sampled_from([LITERAL, PREFIXED]),
    principal=PRINCIPALS,
    host=HOSTS,
    operation=OPERATIONS,
    permission=st.sampled_from([ALLOW, DENY]),
)
IMPLIED = {
    DESCRIBE: {DESCRIBE, READ, WRITE, Operation.DELETE, Operation.ALTER},
    Operation.DESCRIBE_CONFIGS: {Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS},
}


def covers(one: Acl, name: str) -> bool:
    if one.pattern_type == PREFIXED:
        return name.startswith(one.name)
    return one.name in (name, "*")


def naive(
    acls: list[Acl], everyone: bool, principal: str, host: str, operation: int, name: str
) -> bool:
    of_resource = [one for one in acls if one.resource_type == TOPIC and covers(one, name)]
    of_client = [
        one
        for one in of_resource
        if one.principal in (principal, "User:*") and one.host in (host, "*")
    ]
    if any(one.permission == DENY and one.operation in (operation, ALL) for one in of_client):
        return False
    wanted = {*IMPLIED.get(Operation(operation), {operation}), ALL}
    if any(one.permission == ALLOW and one.operation in wanted for one in of_client):
        return True
    return everyone and not of_resource


class AuthorizerMachine(RuleBasedStateMachine):
    """Creates and deletes ACLs, and compares decisions, cached and not, with the model."""

    def __init__(self) -> None:
        super().__init__()
        self.acls: list[Acl] = []
        self.strict = Authorizer(["User:admin"])
        self.lax = Authorizer(allow_without_acls=True)

    @rule(acls=st.lists(ACLS, max_size=4))
    def create(self, acls: list[Acl]) -> None:
        self.acls += [one for one in dict.fromkeys(acls) if one not in self.acls]
        self.strict.add(acls)
        self.lax.add(acls)

    @rule(
        condition=st.builds(
            AclFilter,
            resource_type=st.sampled_from([ResourceType.ANY, TOPIC]),
            name=st.none() | NAMES,
            pattern_type=st.sampled_from([PatternType.ANY, PatternType.MATCH, LITERAL, PREFIXED]),
            principal=st.none() | PRINCIPALS,
        )
    )
    def delete(self, condition: AclFilter) -> None:
        found = run_now(self.strict.find(condition))
        assert sorted(found) == sorted(filter(condition.matches, self.acls))
        self.acls = [one for one in self.acls if one not in found]
        self.strict.remove(found)
        self.lax.remove(found)

    @rule(
        principal=st.sampled_from([ALICE, BOB, "User:carol"]),
        host=st.sampled_from([HOST, "h2"]),
        operation=st.sampled_from([READ, WRITE, DESCRIBE, Operation.DESCRIBE_CONFIGS]),
        name=st.sampled_from(["a", "ab", "abcd", "b", "c", "*"]),
    )
    def decide(self, principal: str, host: str, operation: int, name: str) -> None:
        asked = principal, host, operation
        for authorizer, everyone in ((self.strict, False), (self.lax, True)):
            expected = naive(self.acls, everyone, *asked, name)
            for _ in range(2):
                assert authorizer.allows(*asked, TOPIC, name) is expected

    @invariant()
    def indexes_have_nothing_else(self) -> None:
        assert sorted(run_now(self.strict.find(AclFilter()))) == sorted(self.acls)
        if not self.acls:
            assert not self.strict._patterns
            assert not self.strict._patterns_of
            assert not any(self.strict._prefix_lengths.values())


TestAuthorizerMachine = AuthorizerMachine.TestCase
TestAuthorizerMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
