"""Users, ACLs and quotas: each change is there as a whole or not at all. An acknowledged one is
there.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.net.client_quotas import KIND
from headrace.net.scram_users import SCRAM, credentials_of
from headrace.protocol.authorized_operations import Operation
from headrace.security.acls import ANY_HOST, Acl, PatternType, Permission, ResourceType
from headrace.security.quota_entities import FETCH, PRODUCE, USER, Entity, entity_of
from headrace.security.scram import MECHANISMS, MIN_ITERATIONS

from ..witness import Violation
from .actor import Actor

if TYPE_CHECKING:
    from .world import World

CREATE_ACLS, DELETE_ACLS, ALTER_QUOTAS, ALTER_USERS = 30, 31, 49, 51
CONFIGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
"""Every client of the simulation is a super user: it is served as without ACLs."""

USERS = ("ann", "bob", "carol")
ACLS = tuple(
    Acl(
        ResourceType.TOPIC,
        f"{name}-topic",
        PatternType.LITERAL,
        f"User:{name}",
        ANY_HOST,
        operation,
        Permission.ALLOW,
    )
    for name in USERS
    for operation in (Operation.READ, Operation.WRITE, Operation.DESCRIBE)
)
QUOTA_KEYS = (PRODUCE, FETCH)
"""Quotas of users who send nothing: they throttle nobody."""
_KEY_BYTES = 32


class State(NamedTuple):
    """All users, ACLs and quotas.

    :ivar users: (name, mechanism, iterations) of each credential
    :ivar quotas: (entity, key, value) of each quota
    """

    users: frozenset[tuple[str, str, int]] = frozenset()
    acls: frozenset[Acl] = frozenset()
    quotas: frozenset[tuple[Entity, str, float]] = frozenset()


class SecurityAdministrator(Actor):
    """An administrator of users, ACLs and quotas, who knows the possible states of all of them
    together. A request changes several of them, so that a part of it would be seen.

    :ivar possible: the possible states; one until a request is not answered
    """

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.possible = [State()]
        self._iterations = MIN_ITERATIONS

    def act(self) -> str:
        if self.is_waiting:
            return "waits"
        self.check()
        (state,) = self.possible
        dice = self.world.rng.random()
        if dice < 0.35:
            return self._alter_users(state)
        if dice < 0.6:
            return self._alter_quotas(state)
        missing = [acl for acl in ACLS if acl not in state.acls]
        if (dice < 0.85 and missing) or not state.acls:
            return self._create_acls(state, missing)
        return self._delete_acls(state)

    def check(self) -> None:
        """Compare with what the broker uses, which decides what happened to unanswered requests."""
        broker = self.world.machine.broker
        catalog, control = broker.catalog, broker.access_control
        assert control is not None
        users = frozenset(
            (name, mechanism.name, credential.iterations)
            for name in catalog.configured(SCRAM)
            for mechanism, credential in credentials_of(catalog, name).items()
        )
        quotas = frozenset(
            (entity_of(json.loads(text)), key, float(value))
            for text in catalog.configured(KIND)
            for key, value in catalog.configs(KIND, text).items()
        )
        found = State(users, frozenset(catalog.acls), quotas)
        if found not in self.possible:
            raise Violation(f"users, ACLs and quotas are {found}, and should be {self.possible}")
        in_use = {acl for acl in ACLS if acl in control.authorizer.acls}
        if in_use != found.acls or len(control.authorizer.acls) != len(found.acls):
            raise Violation(f"ACLs in use are {in_use}, and stored are {found.acls}")
        limits = {
            (entity, key, value)
            for entity, values in broker.quotas.machine.entities.items()
            for key, value in values.items()
        }
        if limits != found.quotas:
            raise Violation(f"quotas in use are {limits}, and stored are {found.quotas}")
        self.possible = [found]

    def _change(self, api_key: int, version: int, after: State, results: str, **asked: Any) -> None:
        """Send a request that leads to a state.

        :param results: the field of the response with its results
        """
        self.possible = [*self.possible, after]

        def answered(answer: Any) -> None:
            if answer is None:
                return
            codes = {int(one.error_code) for one in getattr(answer, results)}
            if len(codes) != 1:
                raise Violation(f"a request is answered with {codes}")
            if not self.failed(codes.pop()):
                self.possible = [after]
                self.world.counts["users, ACLs and quotas changed"] += 1

        self.ask(api_key, version, answered, **asked)

    def _alter_users(self, state: State) -> str:
        """Give two users a new credential each, and delete all of the third one's."""
        rng = self.world.rng
        mechanism = rng.choice(sorted(MECHANISMS))
        self._iterations += 1
        iterations = MIN_ITERATIONS + self._iterations % MIN_ITERATIONS
        *changed, gone = rng.sample(USERS, 3)
        deleted = [one for one in state.users if one[0] == gone]
        if len(deleted) > 1:  # a user is changed once in a request
            deleted = [min(deleted)]
        kept = {
            one
            for one in state.users
            if one not in deleted and not (one[0] in changed and one[1] == mechanism)
        }
        new = {(name, mechanism, iterations) for name in changed}
        upsertions = [
            {
                "name": name,
                "mechanism": MECHANISMS[mechanism].number,
                "iterations": iterations,
                "salt": rng.randbytes(_KEY_BYTES),
                "salted_password": rng.randbytes(_KEY_BYTES),
            }
            for name in changed
        ]
        deletions = [
            {"name": name, "mechanism": MECHANISMS[had].number} for name, had, _ in deleted
        ]
        self._change(
            ALTER_USERS,
            0,
            state._replace(users=frozenset(kept | new)),
            "results",
            upsertions=upsertions,
            deletions=deletions,
        )
        return f"gives {changed} {mechanism}, and deletes {[one[0] for one in deleted]}"

    def _alter_quotas(self, state: State) -> str:
        """Set a quota of two users, and remove all of the third one's."""
        rng = self.world.rng
        key = rng.choice(QUOTA_KEYS)
        value = float(rng.randint(1, 1 << 40))
        *changed, gone = (entity_of({USER: name}) for name in rng.sample(USERS, 3))
        removed = {one for one in state.quotas if one[0] == gone}
        kept = {one for one in state.quotas - removed if not (one[0] in changed and one[1] == key)}
        new = {(entity, key, value) for entity in changed}
        ops = {entity: [{"key": key, "value": value, "remove": False}] for entity in changed}
        ops[gone] = [{"key": had, "value": 0.0, "remove": True} for _, had, _ in sorted(removed)]
        entries = [
            {
                "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity],
                "ops": asked,
            }
            for entity, asked in ops.items()
            if asked
        ]
        after = state._replace(quotas=frozenset(kept | new))
        self._change(ALTER_QUOTAS, 1, after, "entries", entries=entries, validate_only=False)
        return f"sets {key} of two users, and removes {len(removed)} quotas of another"

    def _create_acls(self, state: State, missing: list[Acl]) -> str:
        rng = self.world.rng
        acls = rng.sample(missing, rng.randint(min(2, len(missing)), len(missing)))
        creations = [
            {
                "resource_type": int(acl.resource_type),
                "resource_name": acl.name,
                "resource_pattern_type": int(acl.pattern_type),
                "principal": acl.principal,
                "host": acl.host,
                "operation": int(acl.operation),
                "permission_type": int(acl.permission),
            }
            for acl in acls
        ]
        after = state._replace(acls=state.acls | frozenset(acls))
        self._change(CREATE_ACLS, 3, after, "results", creations=creations)
        return f"creates {len(acls)} ACLs"

    def _delete_acls(self, state: State) -> str:
        """Delete all ACLs of two users."""
        names = {f"User:{name}" for name in self.world.rng.sample(USERS, 2)}
        filters = [
            {
                "resource_type_filter": int(ResourceType.ANY),
                "resource_name_filter": None,
                "pattern_type_filter": int(PatternType.ANY),
                "principal_filter": name,
                "host_filter": None,
                "operation": int(Operation.ANY),
                "permission_type": int(Permission.ANY),
            }
            for name in sorted(names)
        ]
        left = frozenset(acl for acl in state.acls if acl.principal not in names)
        after = state._replace(acls=left)
        self._change(DELETE_ACLS, 3, after, "filter_results", filters=filters)
        return f"deletes {len(state.acls) - len(left)} ACLs"
