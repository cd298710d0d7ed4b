"""The authorizer: decides whether a principal on a host may do an operation on a resource.

The rules are those of Kafka's ``StandardAuthorizer``:

1. A super user may do everything.
2. The ACLs of a resource are those with its literal name, with ``*``, and with a prefix of its
   name. They hold for a principal and ``User:*``, for a host and ``*``.
3. A DENY of the operation, or of ALL, refuses. A DENY implies nothing: who must not READ may still
   DESCRIBE.
4. An ALLOW of the operation, of ALL, or of an operation that implies it, allows. READ, WRITE,
   DELETE and ALTER imply DESCRIBE; ALTER_CONFIGS implies DESCRIBE_CONFIGS.
5. Otherwise the operation is refused; except on a resource that has no ACL at all, for anybody,
   if ``allow.everyone.if.no.acl.found`` is true.

ACLs are indexed by pattern, then by principal and host, as bit fields of operations. So an uncached
decision takes one look-up for each length of a prefix, however many ACLs there are.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from itertools import product
from types import MappingProxyType

from headrace.protocol.authorized_operations import (
    CLUSTER_OPERATIONS,
    GROUP_OPERATIONS,
    TOPIC_OPERATIONS,
    Operation,
    bit_field,
)

from .acls import (
    ANY_HOST,
    ANY_NAME,
    ANY_PRINCIPAL,
    Acl,
    AclFilter,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
)

MAX_CACHED_DECISIONS = 20_000
"""The decisions of an authorizer that are remembered; one more forgets them all. A decision takes
about 300 bytes.
"""

MAX_CACHED_NAME_LENGTH = 249
"""The longest name of a resource whose decisions are remembered: that of a topic. Clients may send
names of 32,767 characters.
"""

ACLS_PER_STEP = 500
"""The ACLs that a search compares with a filter before other requests are served."""

SUPPORTED_OPERATIONS: Mapping[int, int] = MappingProxyType(
    {
        ResourceType.TOPIC: TOPIC_OPERATIONS,
        ResourceType.GROUP: GROUP_OPERATIONS,
        ResourceType.CLUSTER: CLUSTER_OPERATIONS,
        ResourceType.TRANSACTIONAL_ID: bit_field(
            Operation.DESCRIBE, Operation.WRITE, Operation.TWO_PHASE_COMMIT
        ),
    }
)
"""The operations that a resource of a type supports, as a bit field."""

_ALL = bit_field(Operation.ALL)
_ALLOWED_BY = {operation: _ALL | bit_field(operation) for operation in Operation} | {
    Operation.DESCRIBE: _ALL
    | bit_field(
        Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER
    ),
    Operation.DESCRIBE_CONFIGS: _ALL
    | bit_field(Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS),
}
"""The operations whose ALLOW allows an operation."""
_NO_SUCH_RESOURCE = "hardcode"
"""Kafka's own: the resource that stands for some resource of a type."""

_Client = tuple[str, str]
"""Principal and host of an ACL."""
_Masks = list[int]
"""The denied and the allowed operations, as bit fields."""
_Question = tuple[str, str, int, int, str | None]
"""Principal, host, operation, type and name of a resource; None for any resource of the type."""


class Authorizer:
    """The ACLs of a cluster, and the decisions by them.

    :param super_users: principals as text
    :param allow_without_acls: ``allow.everyone.if.no.acl.found``
    :ivar acls: the ACLs
    """

    def __init__(
        self, super_users: Collection[str] = (), *, allow_without_acls: bool = False
    ) -> None:
        self.super_users = frozenset(super_users)
        self.allow_without_acls = allow_without_acls
        self.acls: dict[Acl, None] = {}
        self._patterns: dict[Pattern, dict[_Client, _Masks]] = {}
        self._prefix_lengths: dict[int, Counter[int]] = defaultdict(Counter)
        """The number of prefixed patterns of a type of resource, by the length of the prefix."""
        self._patterns_of: dict[tuple[int, _Client], dict[Pattern, None]] = {}
        self._decisions: dict[_Question, bool] = {}

    # ACLs -----------------------------------------------------------------------------------------

    def add(self, acls: Iterable[Acl]) -> None:
        """Add ACLs. Those that are there already change nothing."""
        for acl in acls:
            if acl not in self.acls:
                self.acls[acl] = None
                self._index(acl)
        self._decisions.clear()

    def remove(self, acls: Iterable[Acl]) -> None:
        """Remove ACLs that are there."""
        for acl in acls:
            del self.acls[acl]
            self._unindex(acl)
        self._decisions.clear()

    def find(self, condition: AclFilter) -> Generator[None, None, list[Acl]]:
        """Return the ACLs that meet a condition; yield between pieces of work."""
        pattern = condition.pattern
        acls = list(self.acls if pattern is None else self._of_pattern(pattern))
        matching: list[Acl] = []
        for first in range(0, len(acls), ACLS_PER_STEP):
            matching += filter(condition.matches, acls[first : first + ACLS_PER_STEP])
            yield
        return matching

    def _of_pattern(self, pattern: Pattern) -> Iterator[Acl]:
        for (principal, host), masks in self._patterns.get(pattern, {}).items():
            for permission, mask in zip((Permission.DENY, Permission.ALLOW), masks, strict=True):
                for operation in Operation:
                    if mask >> operation & 1:
                        yield Acl(*pattern, principal, host, operation, permission)

    def _index(self, acl: Acl) -> None:
        pattern, client = acl.pattern, (acl.principal, acl.host)
        if acl.pattern_type == PatternType.PREFIXED and pattern not in self._patterns:
            self._prefix_lengths[acl.resource_type][len(acl.name)] += 1
        masks = self._patterns.setdefault(pattern, {}).setdefault(client, [0, 0])
        masks[acl.permission - Permission.DENY] |= 1 << acl.operation
        self._patterns_of.setdefault((acl.resource_type, client), {})[pattern] = None

    def _unindex(self, acl: Acl) -> None:
        pattern, client = acl.pattern, (acl.principal, acl.host)
        clients = self._patterns[pattern]
        masks = clients[client]
        masks[acl.permission - Permission.DENY] &= ~(1 << acl.operation)
        if any(masks):
            return
        del clients[client]
        patterns = self._patterns_of[acl.resource_type, client]
        del patterns[pattern]
        if not patterns:
            del self._patterns_of[acl.resource_type, client]
        if clients:
            return
        del self._patterns[pattern]
        if acl.pattern_type == PatternType.PREFIXED:
            self._prefix_lengths[acl.resource_type] -= Counter((len(acl.name),))

    # Decisions ------------------------------------------------------------------------------------

    def allows(
        self, principal: str, host: str, operation: int, resource_type: int, name: str | None
    ) -> bool:
        """Return whether a principal on a host may do an operation on a resource.

        :param name: None for some resource of the type. That is so if an ACL allows it, of a
            pattern that no DENY covers as a whole. As in Kafka, implied operations do not count
        """
        question = principal, host, operation, resource_type, name
        decision = self._decisions.get(question)
        if decision is None:
            resource = _NO_SUCH_RESOURCE if name is None else name
            decision = self._decide(principal, host, operation, resource_type, resource)
            if name is None and not decision:
                decision = self._allows_any(principal, host, operation, resource_type)
            if len(name or "") <= MAX_CACHED_NAME_LENGTH:
                if len(self._decisions) >= MAX_CACHED_DECISIONS:
                    self._decisions.clear()
                self._decisions[question] = decision
        return decision

    def operations(self, principal: str, host: str, resource_type: int, name: str) -> int:
        """Return the operations on a resource that are allowed, as a bit field (KIP-430)."""
        supported = SUPPORTED_OPERATIONS[resource_type]
        return bit_field(
            *(
                operation
                for operation in Operation
                if supported >> operation & 1
                and self.allows(principal, host, operation, resource_type, name)
            )
        )

    def _decide(
        self, principal: str, host: str, operation: int, resource_type: int, name: str
    ) -> bool:
        if principal in self.super_users:
            return True
        clients = _clients(principal, host)
        denied = allowed = 0
        has_acls = False
        for of_pattern in self._matching(resource_type, name):
            has_acls = True
            for client in clients:
                masks = of_pattern.get(client)
                if masks is not None:
                    denied |= masks[0]
                    allowed |= masks[1]
        if denied & (_ALL | 1 << operation):
            return False
        if allowed & _ALLOWED_BY[Operation(operation)]:
            return True
        return self.allow_without_acls and not has_acls

    def _matching(self, resource_type: int, name: str) -> Iterator[dict[_Client, _Masks]]:
        """Return the ACLs of each pattern that a name matches."""
        patterns: list[Pattern] = [
            (resource_type, name[:length], PatternType.PREFIXED)
            for length in self._prefix_lengths.get(resource_type, ())
            if length <= len(name)
        ]
        patterns += ((resource_type, literal, PatternType.LITERAL) for literal in (name, ANY_NAME))
        return filter(None, map(self._patterns.get, patterns))

    def _allows_any(self, principal: str, host: str, operation: int, resource_type: int) -> bool:
        mask = _ALL | 1 << operation
        denied: set[Pattern] = set()
        allowed: dict[Pattern, None] = {}
        for client in dict.fromkeys(_clients(principal, host)):
            for pattern in self._patterns_of.get((resource_type, client), ()):
                denies, allows = self._patterns[pattern][client]
                if denies & mask:
                    denied.add(pattern)
                if allows & mask:
                    allowed[pattern] = None
        everything = resource_type, ANY_NAME, int(PatternType.LITERAL)
        if everything in denied:
            return False
        if everything in allowed:
            return True
        return any(not _is_covered(pattern, denied) for pattern in allowed)


def _clients(principal: str, host: str) -> tuple[_Client, ...]:
    """Return the principals and hosts whose ACLs hold for a client."""
    return tuple(product((principal, ANY_PRINCIPAL), (host, ANY_HOST)))


def _is_covered(pattern: Pattern, denied: Collection[Pattern]) -> bool:
    """Return whether a DENY covers every resource of a pattern."""
    resource_type, name, pattern_type = pattern
    if pattern_type == PatternType.LITERAL and pattern in denied:
        return True
    return any(
        (resource_type, name[:length], int(PatternType.PREFIXED)) in denied
        for length in range(1, len(name) + 1)
    )
