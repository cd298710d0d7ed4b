"""Descriptions of groups, for requests of one form."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar
from uuid import UUID

from headrace.net.api import DESCRIBE, GROUP, TOPIC
from headrace.net.call import SLICED_ABOVE, Call
from headrace.protocol.errors import ErrorCode, Refusal
from headrace.topics.catalog import Topic


class Request(Protocol):
    """A request that describes groups."""

    group_ids: Sequence[str]
    include_authorized_operations: bool


class DescribedGroup(Protocol):
    """A group in its response."""

    group_id: str
    authorized_operations: int

    @property
    def members(self) -> Sized: ...


_HIDDEN = "The group has described topic(s) that the client is not authorized to describe."

G = TypeVar("G")
D = TypeVar("D", bound=DescribedGroup)
Refuse = Callable[[int, str | None, str], D]
"""Makes a group of the response from an error, its message, and the id of the group."""


@dataclass(frozen=True, slots=True)
class Describer(Generic[G, D]):
    """How the groups of one kind are described.

    :param find: returns a group by its id
    :param describe: describes a group, and its members when they are written
    :param topics: returns the names of the topics that a group uses: the client must be allowed to
        describe them
    :param hidden: Kafka's message for a group with topics that are hidden
    """

    refuse: Refuse[D]
    find: Callable[[str], G | Refusal]
    describe: Callable[[G], D]
    topics: Callable[[G], Iterable[str]]
    hidden: str = _HIDDEN


async def describe_groups(
    call: Call, request: Request, describer: Describer[G, D]
) -> Collection[D]:
    """Return a description for each id; one with an error for a group that is not found, or that
    the client may not describe. Many groups are described when the response is written.
    """
    refuse = describer.refuse
    allowed, refused = await call.allowed_items(request.group_ids, refuse)

    def described(group_id: str) -> D:
        group = describer.find(group_id) if group_id else Refusal(ErrorCode.INVALID_GROUP_ID)
        if isinstance(group, Refusal):
            return refuse(group.code, group.message, group_id)
        if call.access.is_limited and not call.access.allows_all(
            DESCRIBE, TOPIC, dict.fromkeys(describer.topics(group))
        ):
            return refuse(ErrorCode.TOPIC_AUTHORIZATION_FAILED, describer.hidden, group_id)
        description = describer.describe(group)
        description.group_id = group_id
        if request.include_authorized_operations:
            description.authorized_operations = call.access.operations(GROUP, group_id)
        return description

    groups = call.lazily(described, allowed, refused)
    if not call.is_long:
        call.is_long = sum(len(group.members) for group in groups) > SLICED_ABOVE
    return groups


def existing(
    topics: Mapping[UUID, Topic], partitions: Mapping[UUID, Collection[int]]
) -> Iterator[tuple[UUID, str, Collection[int]]]:
    """Yield id, name and partitions of the topics of an assignment that exist."""
    for topic_id, numbers in partitions.items():
        if topic_id in topics:
            yield topic_id, topics[topic_id].name, numbers
