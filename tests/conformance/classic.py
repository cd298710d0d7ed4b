"""Classic groups and committed offsets as cases see them, asked with raw requests in any version.

group = ClassicGroup(world)
member = group.join(subscription(topic.name))
assert member.commit(topic, {0: 5}) == {0: OK}
assert group.committed == {topic.name: {0: 5}}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from headrace.protocol.errors import ErrorCode
from tests import subscriptions
from tests.conformance.world import COORDINATOR_IS_COMING, OK, Topic, World, outcome
from tests.support import unique
from tests.wire_client import Connection

NONE = -1
"""The offset of a partition without one; the generation of a client that is no member."""

Partition = tuple[int, int, str, str]
"""Offset, leader epoch, metadata, error."""


def subscription(
    *topics: str, version: int = 1, owned: Mapping[str, Sequence[int]] | None = None
) -> bytes:
    """Return a consumer's metadata for JoinGroup; from version 1 on with the partitions it owns."""
    return subscriptions.subscription(version, topics, owned)


class ClassicGroup:
    """A group of classic members, or of none: a group id with committed offsets."""

    def __init__(self, world: World, group_id: str | None = None) -> None:
        self.world = world
        self.id = unique("classic") if group_id is None else group_id

    # --- offsets ---

    def commit(
        self,
        topic: Topic | str | UUID,
        offsets: Mapping[int, int],
        version: int = 9,
        *,
        member_id: str = "",
        generation: int = NONE,
        metadata: str | None = "",
        leader_epoch: int = -1,
        retention_ms: int | None = None,
        instance_id: str | None = None,
    ) -> dict[int, str]:
        """Send OffsetCommit for one topic; return the error of each partition."""
        partitions = [
            {
                "partition_index": index,
                "committed_offset": offset,
                "committed_metadata": metadata,
                "committed_leader_epoch": leader_epoch,
            }
            for index, offset in offsets.items()
        ]
        fields = {
            "group_id": self.id,
            "member_id": member_id,
            "generation_id_or_member_epoch": generation,
            "group_instance_id": instance_id,
            "retention_time": -1 if retention_ms is None else retention_ms,
            "topics": [{**_reference(topic), "partitions": partitions}],
        }
        (answer,) = self.world.ask(8, version, **fields).topics
        return {one.partition_index: outcome(one.error_code) for one in answer.partitions}

    def fetch(
        self,
        asked: Mapping[Any, Sequence[int]] | None,
        version: int = 9,
        *,
        member_id: str | None = None,
        member_epoch: int = -1,
        stable: bool = False,
    ) -> dict[Any, dict[int, Partition]] | str:
        """Send OffsetFetch for this group; return its error, or topic name or id → partition →
        offset, epoch, metadata, error.
        """
        return fetch(self.world, version, {self.id: asked}, member_id, member_epoch, stable=stable)[
            self.id
        ]

    @property
    def committed(self) -> dict[str, dict[int, int]]:
        """All offsets of the group (KIP-88)."""
        found = self.fetch(None)
        assert not isinstance(found, str), found
        return {
            topic: {index: one[0] for index, one in partitions.items()}
            for topic, partitions in found.items()
        }

    def delete_offsets(
        self, asked: Mapping[str, Sequence[int]]
    ) -> list[tuple[str, int, str]] | str:
        """Send OffsetDelete; return (topic, partition, error) in the order of the answer, or the
        error of the whole.
        """
        topics = [
            {"name": name, "partitions": [{"partition_index": index} for index in indexes]}
            for name, indexes in asked.items()
        ]
        response = self.world.ask(47, 0, group_id=self.id, topics=topics)
        if response.error_code:
            assert not response.topics
            return outcome(response.error_code)
        return [
            (topic.name, one.partition_index, outcome(one.error_code))
            for topic in response.topics
            for one in topic.partitions
        ]

    # --- the group ---

    @property
    def listed(self) -> tuple[str, str, str] | None:
        """State, protocol type and group type, or None when it is not in ListGroups."""
        return self.world.groups().get(self.id)

    @property
    def state(self) -> str | None:
        """The state, None when the group is not listed."""
        return self.listed[0] if self.listed else None

    def described(self, version: int = 6) -> Any:
        """Send DescribeGroups."""
        (group,) = self.world.ask(15, version, groups=[self.id]).groups
        return group

    def delete(self) -> str:
        """Send DeleteGroups; return the error."""
        (result,) = self.world.ask(42, 3, groups_names=[self.id]).results
        assert result.error_message is None
        return outcome(result.error_code)

    def member(self, *protocols: tuple[str, bytes], **fields: Any) -> ClassicMember:
        """Return a member that has not joined, on a connection of its own."""
        return ClassicMember(
            self, self.world.connect(), protocols or (("range", subscription()),), **fields
        )

    def join(self, *metadata: bytes, **fields: Any) -> ClassicMember:
        """Return the only member of a stable group."""
        protocols = [(f"protocol-{number}", one) for number, one in enumerate(metadata)]
        member = self.member(*protocols, **fields)
        assert member.join() == OK
        assert member.sync({member.id: b"everything"}) == OK
        return member


@dataclass(slots=True, eq=False)
class ClassicMember:
    """A member of the classic protocol.

    :ivar answer: the last JoinGroup answer, with the generation, the leader and, for the leader,
        the members
    :param version: of JoinGroup; other requests have it, too, or their newest version
    """

    group: ClassicGroup
    connection: Connection
    protocols: Sequence[tuple[str, bytes]]
    protocol_type: str = "consumer"
    instance_id: str | None = None
    session_timeout_ms: int = 10_000
    rebalance_timeout_ms: int = 30_000
    version: int = 9
    id: str = ""
    answer: Any = None
    assignment: bytes = b""
    _sent: tuple[int, int, int] | None = None

    @property
    def generation(self) -> int:
        return int(self.answer.generation_id) if self.answer else NONE

    @property
    def leads(self) -> bool:
        return bool(self.answer.leader == self.id)

    def send_join(self) -> None:
        """Send JoinGroup without waiting for the others; :meth:`joined` returns the error."""
        self._sent = self.connection.send_message(
            11,
            self.version,
            group_id=self.group.id,
            session_timeout=self.session_timeout_ms,
            rebalance_timeout=self.rebalance_timeout_ms,
            member_id=self.id,
            group_instance_id=self.instance_id,
            protocol_type=self.protocol_type,
            protocols=[{"name": name, "metadata": data} for name, data in self.protocols],
        )

    def joined(self) -> str:
        """Wait for the answer to :meth:`send_join`; return its error."""
        assert self._sent is not None
        self.answer, self._sent = self.connection.receive_message(self._sent), None
        if self.answer.member_id:
            self.id = self.answer.member_id
        return outcome(self.answer.error_code)

    def introduce(self) -> None:
        """Send JoinGroup until only the other members are missing: again with the member id that
        the coordinator requires (KIP-394).
        """
        self.send_join()
        if self.version >= 4 and not self.id and self.instance_id is None:
            error = self.joined()
            while error in {code.name for code in COORDINATOR_IS_COMING}:
                self.send_join()
                error = self.joined()
            assert error == "MEMBER_ID_REQUIRED"
            self.send_join()

    def join_at_once(self) -> str:
        """Send JoinGroup once; return the error."""
        self.send_join()
        return self.joined()

    def join(self) -> str:
        """Join, with a required member id too; return the error."""
        self.introduce()
        return self.joined()

    def waits(self, within_s: float = 0.3) -> bool:
        """Return whether its JoinGroup or SyncGroup is still not answered."""
        return not self.connection.has_response(within_s)

    def send_sync(
        self, assignments: Mapping[str, bytes] | None = None, generation: int | None = None
    ) -> None:
        """Send SyncGroup without waiting for the leader."""
        self._sent = self.connection.send_message(
            14,
            min(self.version, 5),
            group_id=self.group.id,
            generation_id=self.generation if generation is None else generation,
            member_id=self.id,
            group_instance_id=self.instance_id,
            protocol_type=self.protocol_type,
            protocol_name=getattr(self.answer, "protocol_name", None),
            assignments=[
                {"member_id": one, "assignment": data} for one, data in (assignments or {}).items()
            ],
        )

    def synced(self) -> str:
        """Wait for the answer to :meth:`send_sync`; return its error."""
        assert self._sent is not None
        answer, self._sent = self.connection.receive_message(self._sent), None
        if not answer.error_code:
            self.assignment = answer.assignment
        return outcome(answer.error_code)

    def sync(
        self, assignments: Mapping[str, bytes] | None = None, generation: int | None = None
    ) -> str:
        """Send SyncGroup and wait for its answer; return the error."""
        self.send_sync(assignments, generation)
        return self.synced()

    def heartbeat(self, generation: int | None = None) -> str:
        answer = self.connection.ask(
            12,
            min(self.version, 4),
            group_id=self.group.id,
            generation_id=self.generation if generation is None else generation,
            member_id=self.id,
            group_instance_id=self.instance_id,
        )
        return outcome(answer.error_code)

    def leave(self) -> str:
        one = {"member_id": self.id, "group_instance_id": self.instance_id}
        version = min(self.version, 5)
        answer = self.connection.ask(13, version, group_id=self.group.id, members=[one], **one)
        if version < 3:
            return outcome(answer.error_code)
        assert answer.error_code == 0
        return outcome(answer.members[0].error_code)

    def commit(
        self, topic: Topic | str, offsets: Mapping[int, int], version: int = 9, **fields: Any
    ) -> dict[int, str]:
        """Send OffsetCommit as this member."""
        fields.setdefault("generation", self.generation)
        return self.group.commit(
            topic, offsets, version, member_id=self.id, instance_id=self.instance_id, **fields
        )


def fetch(
    world: World,
    version: int,
    asked: Mapping[str, Mapping[Any, Sequence[int]] | None],
    member_id: str | None = None,
    member_epoch: int = -1,
    *,
    stable: bool = False,
) -> dict[str, dict[Any, dict[int, Partition]] | str]:
    """Send OffsetFetch for groups, each with its topics or None for all. Before version 8 there
    must be one group.
    """
    groups = [
        {
            "group_id": group_id,
            "topics": _topics(topics),
            "member_id": member_id,
            "member_epoch": member_epoch,
        }
        for group_id, topics in asked.items()
    ]
    only_group = groups[0] if version < 8 else {}
    response = world.ask(9, version, groups=groups, require_stable=stable, **only_group)
    if version < 8:
        return {groups[0]["group_id"]: _offsets(response, version)}
    return {one.group_id: _offsets(one, version) for one in response.groups}


def _reference(topic: Topic | str | UUID) -> dict[str, Any]:
    """Return the fields that refer to a topic: both, or the one that is given."""
    if isinstance(topic, str):
        return {"name": topic}
    if isinstance(topic, UUID):
        return {"topic_id": topic}
    return {"name": topic.name, "topic_id": topic.id}


def _topics(asked: Mapping[Any, Iterable[int]] | None) -> list[dict[str, Any]] | None:
    if asked is None:
        return None
    return [{**_reference(topic), "partition_indexes": list(of)} for topic, of in asked.items()]


def _offsets(group: Any, version: int) -> dict[Any, dict[int, Partition]] | str:
    if getattr(group, "error_code", ErrorCode.NONE):
        assert not group.topics
        return outcome(group.error_code)
    return {
        (one.topic_id if version >= 10 else one.name): {
            partition.partition_index: (
                partition.committed_offset,
                getattr(partition, "committed_leader_epoch", -1),
                partition.metadata,
                outcome(partition.error_code),
            )
            for partition in one.partitions
        }
        for one in group.topics
    }
