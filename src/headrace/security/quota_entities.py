"""Client quotas as Apache Kafka stores them (KIP-546): entities, their keys, and filters.

An entity has a name for each of its types: user, client id, or ip. The name None is the default: it
stands for all without a name of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import NamedTuple

from headrace.protocol.errors import ErrorCode, Refusal, invalid_request

USER, CLIENT_ID, IP = "user", "client-id", "ip"
TYPES = (USER, CLIENT_ID, IP)

PRODUCE, FETCH = "producer_byte_rate", "consumer_byte_rate"
REQUEST, MUTATION = "request_percentage", "controller_mutation_rate"
CONNECTION = "connection_creation_rate"

EXACT, DEFAULT, ANY = 0, 1, 2
"""The ways in which a part of a filter matches a name: this name, the default, or either."""

_EPSILON = 1e-6
_CLIENT_KEYS: Mapping[str, tuple[float, str] | None] = {
    PRODUCE: (2.0**63, "a LONG"),
    FETCH: (2.0**63, "a LONG"),
    REQUEST: None,
    MUTATION: None,
}
_IP_KEYS: Mapping[str, tuple[float, str] | None] = {CONNECTION: (2.0**31 - 1, "an INT")}
"""The largest value of a key that must be an integer, and its type; None for any number."""

Name = str | None
Entity = tuple[tuple[str, Name], ...]
"""Types and names, in the order of the types' names."""


class Part(NamedTuple):
    """A part of a filter.

    :ivar how: :data:`EXACT`, :data:`DEFAULT` or :data:`ANY`
    :ivar name: for :data:`EXACT`
    """

    type: str
    how: int
    name: Name


def entity_of(names: Mapping[str, Name]) -> Entity:
    """Return the entity with these names by type."""
    return tuple(sorted(names.items()))


def duplicate(entity: Entity) -> Refusal:
    """Return the error for an entity, or a key of it, that a request has twice."""
    names = (f"{kind}={'null' if name is None else name}" for kind, name in entity)
    return invalid_request(
        f"Ignoring duplicate entity ClientQuotaEntity(entries={{{', '.join(names)}}})"
    )


def check_entity(entity: Entity) -> Refusal | None:
    """Return the error for an entity without its values, None if it is valid so far."""
    if not entity:
        return invalid_request("Invalid empty client quota entity")
    for kind, name in entity:
        if kind not in TYPES:
            return invalid_request(f"Unhandled client quota entity type: {kind}")
        if name == "":
            return invalid_request(f"Empty {kind} not supported")
    if len(entity) > 1 and IP in dict(entity):
        return invalid_request(
            "Invalid quota entity combination, IP entity shouldnot be combined with User or "
            "ClientId"
        )
    return None


def host_of(entity: Entity) -> str | None:
    """Return the address or host name of a valid entity; None if it has none."""
    return dict(entity).get(IP)


def check_value(entity: Entity, key: str, value: float) -> Refusal | None:
    """Return the error for a value of a valid entity, None if it can be set."""
    keys = _IP_KEYS if IP in dict(entity) else _CLIENT_KEYS
    if key not in keys:
        return invalid_request(f"Invalid configuration key {key}")
    if not math.isfinite(value):
        return invalid_request(f"Quota {key} must be a finite number")
    if value <= 0:
        return invalid_request(f"Quota {key} must be greater than 0")
    integral = keys[key]
    if integral is not None:
        largest, kind = integral
        if value > largest:
            return invalid_request(f"Proposed value for {key} is too large for {kind}.")
        if math.fmod(value, 1) > _EPSILON:
            return invalid_request(f"{key} cannot be a fractional value.")
    return None


def plan(
    entity: Entity,
    changes: Sequence[tuple[str, float | None]],
    current: Container[str],
    is_host: Callable[[str], bool],
) -> Mapping[str, float | None] | Refusal:
    """Return the changes of an entity to store, or their error.

    :param changes: keys and values; None removes a key
    :param current: the keys that the entity has
    :param is_host: returns whether a name is an address or that of a host
    """
    if len(dict(changes)) < len(changes):
        return duplicate(entity)
    refusal = check_entity(entity)
    if refusal is not None:
        return refusal
    host = host_of(entity)
    if host is not None and not is_host(host):
        return invalid_request(f"{host} is not a valid IP or resolvable host.")
    for key, value in changes:
        if value is not None and (refusal := check_value(entity, key, value)) is not None:
            return refusal
    return {key: value for key, value in changes if value is not None or key in current}


def check_filter(parts: Iterable[Part]) -> Refusal | None:
    """Return the error for a filter, None if it is valid."""
    types: set[str] = set()
    for kind, how, name in parts:
        if not kind:
            return invalid_request("Invalid empty entity type.")
        if kind in types:
            return invalid_request(
                f"Entity type {kind} cannot appear more than once in the filter."
            )
        if kind not in TYPES:
            return Refusal(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        types.add(kind)
        if how == EXACT and name is None:
            return invalid_request(
                "Request specified MATCH_TYPE_EXACT, but set match string to null."
            )
        if how in (DEFAULT, ANY) and name is not None:
            match_type = "DEFAULT" if how == DEFAULT else "SPECIFIED"
            return invalid_request(
                f"Request specified MATCH_TYPE_{match_type}, but also specified a match string."
            )
        if how not in (EXACT, DEFAULT, ANY):
            return invalid_request(f"Unknown match type {how}")
    if IP in types and len(types) > 1:
        return invalid_request(
            "Invalid entity filter component combination. IP filter component should not be used "
            "with user or clientId filter component."
        )
    return None


def matches(entity: Entity, parts: Sequence[Part], *, strict: bool) -> bool:
    """Return whether a valid filter matches an entity.

    :param strict: the entity must not have other types
    """
    if strict and len(entity) != len(parts):
        return False
    names = dict(entity)
    return all(kind in names and (how == ANY or names[kind] == name) for kind, how, name in parts)
