"""Topics with records, share groups and an administrator's view of them, as conformance cases use
them.

Requests go through `tests.wire_client`; answers come as plain values. An error is `OK`, or Kafka's
name for it with the message; a state is text. A case reads like the sentence that it checks:

    topic = world.topic(records=10)
    group = world.group(share_auto_offset_reset="earliest")
    member = group.join(topic)
    assert member.fetch() == "0-9 c1"
    assert member.ack("0-4 accept") == OK
    assert group.lag(topic) == 5
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from headrace.protocol.errors import ErrorCode
from tests.support import unique, wait_until
from tests.wire_client import Connection, batch

if TYPE_CHECKING:
    from tests.conformance.members import Member

OK = "OK"
NO_OFFSET = -1
"""Start offset and lag while they are not known."""
PATIENCE_S = 30.0
"""Limit for everything that must happen: far more than it needs, so that a slow machine is no
failure.
"""

COORDINATOR_IS_COMING = frozenset(
    (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    )
)
GROUP_RESOURCE, SET = 32, 0
EARLIEST, LATEST = -2, -1


def outcome(code: int, message: str | None = None) -> str:
    """Return an error as cases write it: "OK", "INVALID_REQUEST", "GROUP_ID_NOT_FOUND: Group g not
    found.".
    """
    if code == ErrorCode.NONE:
        assert not message, f"a message without an error: {message}"
        return OK
    name = ErrorCode(int(code)).name
    return name if message is None else f"{name}: {message}"


def _codes_in(answer: Any) -> Iterator[ErrorCode]:
    """Yield the error codes in all parts of an answer."""
    for field in dataclasses.fields(answer):
        value = getattr(answer, field.name)
        if field.name.endswith("error_code"):
            yield value
        for part in value if isinstance(value, tuple) else (value,):
            if dataclasses.is_dataclass(part):
                yield from _codes_in(part)


class World:
    """A broker under test, seen through one connection.

    :param target: "headrace" or "kafka"
    """

    def __init__(self, bootstrap_servers: str, target: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.target = target
        self._open: list[Connection] = []
        self.connection = self.connect()

    def connect(self) -> Connection:
        """Return another connection, which is closed with the others."""
        opened = Connection(self.bootstrap_servers, timeout_s=60)
        self._open.append(opened)
        return opened

    def close(self) -> None:
        for opened in self._open:
            opened.close()

    def __enter__(self) -> World:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(
        self,
        api_key: int,
        version: int,
        *,
        again: frozenset[ErrorCode] = COORDINATOR_IS_COMING,
        **fields: Any,
    ) -> Any:
        """Send a request on the connection of this object.

        :param again: the errors in any part of the answer after which it is sent again
        """

        def answered() -> Any:
            response = self.connection.ask(api_key, version, **fields)
            return None if again.intersection(_codes_in(response)) else response

        return wait_until(answered, PATIENCE_S, "a coordinator", interval_s=0.05)

    def warm_up(self) -> None:
        """Create both internal topics, which happens when somebody asks for a coordinator."""
        group_key, share_key = "any", f"any:{'A' * 22}:0"
        assert [self.find_coordinator(group_key, 0)[0], self.find_coordinator(share_key, 2)[0]] == [
            OK,
            OK,
        ]
        self.topic()

    def serves(self, api_key: int) -> bool:
        return api_key in self.connection.api_versions()

    # --- what cases begin with ---

    def topic(
        self, partitions: int = 1, records: int = 0, name: str | None = None, **configs: str
    ) -> Topic:
        """Create a topic, with one batch of `records` in its first partition."""
        name = name or unique("topic")
        topic = Topic(self, name, self.connection.create_topic(name, partitions, **configs))
        # The coordinators hear of a new topic a moment after its creator does.
        probe = Group(self, f"probe-{name}")
        wait_until(
            lambda: probe.alter(name, {partitions - 1: 0}) == {partitions - 1: OK},
            PATIENCE_S,
            "the topic",
        )
        assert probe.delete() == OK
        if records:
            topic.produce(records)
        return topic

    def group(self, **configs: str) -> Group:
        """A group id that nobody has used, with these group configs (underscores for dots)."""
        group = Group(self, unique("group"))
        for name, value in configs.items():
            assert group.configure(name.replace("_", "."), value) == OK
        return group

    def earliest_group(self, **configs: str) -> Group:
        """A group whose members begin with the oldest record."""
        return self.group(share_auto_offset_reset="earliest", **configs)

    def classic_group(self, topic: Topic) -> str:
        """The id of a classic group without members that has committed an offset."""
        group_id = unique("classic")
        assert self.commit_offset(group_id, topic) == OK
        return group_id

    def commit_offset(self, group_id: str, topic: Topic) -> str:
        """OffsetCommit without a member: offset 1 of partition 0."""
        partition = {"partition_index": 0, "committed_offset": 1}
        topics = [{"name": topic.name, "partitions": [partition]}]
        response = self.ask(8, 9, group_id=group_id, member_id="", topics=topics)
        return outcome(response.topics[0].partitions[0].error_code)

    # --- what an administrator sees ---

    def groups(
        self, states: Sequence[str] = (), types: Sequence[str] = ()
    ) -> dict[str, tuple[str, str, str]]:
        """ListGroups: id → state, protocol type, group type."""
        response = self.ask(16, 5, states_filter=states, types_filter=types)
        assert response.error_code == 0
        return {
            one.group_id: (one.group_state, one.protocol_type, one.group_type)
            for one in response.groups
        }

    def describe_groups(self, *group_ids: str) -> list[Any]:
        """The answer to ShareGroupDescribe."""
        return list(self.ask(77, 1, group_ids=group_ids).groups)

    def describe_offsets(
        self, group_id: str, topics: Mapping[str, Sequence[int]] | None, version: int = 1
    ) -> Any:
        """DescribeShareGroupOffsets of one group; `topics` None means all that it has."""
        asked = (
            None
            if topics is None
            else [{"topic_name": t, "partitions": p} for t, p in topics.items()]
        )
        (group,) = self.ask(90, version, groups=[{"group_id": group_id, "topics": asked}]).groups
        return group

    def find_coordinator(self, key: str, key_type: int) -> tuple[str, int]:
        """FindCoordinator v6: the error, and the node."""
        (one,) = self.ask(10, 6, key_type=key_type, coordinator_keys=[key]).coordinators
        return outcome(one.error_code), one.node_id


class Topic:
    """A topic under test."""

    def __init__(self, world: World, name: str, topic_id: UUID) -> None:
        self.world, self.name, self.id = world, name, topic_id

    def produce(self, *sizes: int, partition: int = 0, age_ms: int = 0) -> None:
        """Append log batches of so many records, which were written `age_ms` ago."""
        timestamp_ms = int(time.time() * 1000) - age_ms
        for size in sizes:
            self.append(batch([b"v"] * size, timestamp_ms=timestamp_ms), partition)

    def append(
        self, records: bytes, partition: int = 0, transactional_id: str | None = None
    ) -> None:
        """Produce one batch as it is given."""
        code, _ = self.world.connection.produce(
            self.name, records, partition, transactional_id=transactional_id
        )
        assert outcome(code) == OK

    def end_offset(self, *, committed: bool = False) -> int:
        """Return the high watermark of partition 0, or the last stable offset."""
        return self.list_offset(LATEST, committed=committed)

    def list_offset(self, timestamp: int, partition: int = 0, *, committed: bool = False) -> int:
        """Return the answer of ListOffsets for one partition and a time, or `EARLIEST` or
        `LATEST`.
        """
        asked = {"partition_index": partition, "timestamp": timestamp}
        (topic,) = self.world.ask(
            2,
            7,
            replica_id=-1,
            isolation_level=int(committed),
            topics=[{"name": self.name, "partitions": [asked]}],
        ).topics
        (one,) = topic.partitions
        assert one.error_code == 0, one
        offset: int = one.offset
        return offset

    def grow(self, partitions: int) -> None:
        """Send CreatePartitions, for this many in all."""
        new = {"name": self.name, "count": partitions, "assignments": None}
        (result,) = self.world.ask(37, 3, topics=[new], timeout=30_000).results
        assert result.error_code == 0, result

    def delete(self) -> None:
        (result,) = self.world.ask(20, 6, topics=[{"name": self.name}], timeout=30_000).responses
        assert result.error_code == 0, result

    def delete_records_before(self, offset: int) -> None:
        """Send DeleteRecords, so that `offset` becomes the first one."""
        partitions = [{"partition_index": 0, "offset": offset}]
        topics = [{"name": self.name, "partitions": partitions}]
        (topic,) = self.world.ask(21, 2, topics=topics, timeout=30_000).topics
        assert topic.partitions[0].error_code == 0, topic


class Group:
    """A share group under test."""

    def __init__(self, world: World, group_id: str) -> None:
        self.world, self.id = world, group_id

    def member(self, name: str | None = None) -> Member:
        """Return a member that has not joined, on a connection of its own."""
        from tests.conformance.members import Member

        return Member(self, name or unique("member"))

    def join(self, *topics: Topic) -> Member:
        """Return a member that has joined and has its partitions."""
        return self.member().join(*topics)

    def configure(self, name: str, value: str) -> str:
        """Set one group config; return the error."""
        change = {"name": name, "config_operation": SET, "value": value}
        resource = {"resource_type": GROUP_RESOURCE, "resource_name": self.id, "configs": [change]}
        (answer,) = self.world.ask(44, 1, resources=[resource]).responses
        return outcome(answer.error_code, answer.error_message or None)

    # --- groups ---

    @property
    def listed(self) -> tuple[str, str, str] | None:
        """State, protocol type and group type, or None when it is not in ListGroups."""
        return self.world.groups().get(self.id)

    @property
    def described(self) -> Any:
        """ShareGroupDescribe."""
        (group,) = self.world.describe_groups(self.id)
        assert group.error_code == 0, group
        return group

    @property
    def epochs(self) -> tuple[int, int]:
        """Group epoch and assignment epoch."""
        return self.described.group_epoch, self.described.assignment_epoch

    def delete(self) -> str:
        """Send DeleteGroups; return the error."""
        (result,) = self.world.ask(42, 2, groups_names=[self.id]).results
        return outcome(result.error_code)

    # --- offsets ---

    def offsets(self, topic: Topic, partition: int = 0) -> tuple[int, int]:
        """Return start offset and lag of one partition; `NO_OFFSET` for what is not known."""
        group = self.world.describe_offsets(self.id, {topic.name: [partition]})
        assert group.error_code == 0, group
        ((one,),) = (topic.partitions for topic in group.topics)
        assert one.error_code == 0, one
        return one.start_offset, one.lag

    def lag(self, topic: Topic, partition: int = 0) -> int:
        return self.offsets(topic, partition)[1]

    @property
    def topics_with_offsets(self) -> dict[str, dict[int, tuple[int, int]]]:
        """Offsets of all topics (DescribeShareGroupOffsets): name → partition → start offset and
        lag.
        """
        group = self.world.describe_offsets(self.id, None)
        assert group.error_code == 0, group
        return {
            topic.topic_name: {
                one.partition_index: (one.start_offset, one.lag) for one in topic.partitions
            }
            for topic in group.topics
        }

    def alter(self, topic: str, offsets: Mapping[int, int]) -> dict[int, str] | str:
        """Send AlterShareGroupOffsets; return the error of each partition, or of the
        whole request.
        """
        partitions = [
            {"partition_index": index, "start_offset": offset} for index, offset in offsets.items()
        ]
        asked = [{"topic_name": topic, "partitions": partitions}]
        response = self.world.ask(91, 0, group_id=self.id, topics=asked)
        if response.error_code:
            assert not response.responses
            return outcome(response.error_code, response.error_message)
        ((answered,),) = ([t.partitions for t in response.responses],)
        return {one.partition_index: outcome(one.error_code, one.error_message) for one in answered}

    def delete_offsets(self, *topics: str) -> dict[str, str] | str:
        """Send DeleteShareGroupOffsets; return the error of each topic, or of the whole request."""
        response = self.world.ask(
            92, 0, group_id=self.id, topics=[{"topic_name": name} for name in topics]
        )
        if response.error_code:
            assert not response.responses
            return outcome(response.error_code, response.error_message)
        return {
            one.topic_name: outcome(one.error_code, one.error_message) for one in response.responses
        }

    # --- share state ---

    def state(self, topic: Topic, partition: int = 0) -> ShareState:
        """Return the share state of one partition, as the share coordinator has it."""
        return ShareState(self.world, self.id, topic.id, partition)


class ShareState:
    """The share state of one key, through the share coordinator's requests (83-87)."""

    def __init__(
        self, world: World, group_id: str, topic_id: UUID | None, partition: int = 0
    ) -> None:
        self.world, self.group_id = world, group_id
        self.topic_id, self.partition = topic_id, partition

    def _ask(self, api_key: int, version: int, **fields: Any) -> Any:
        partitions = [{"partition": self.partition, **fields}]
        ((topic_id, (one,)),) = self.ask(api_key, version, (self.topic_id, partitions))
        assert (topic_id, one.partition) == (self.topic_id, self.partition)
        return one

    def ask(
        self, api_key: int, version: int, *topics: tuple[UUID | None, Sequence[Mapping[str, int]]]
    ) -> list[tuple[UUID, Sequence[Any]]]:
        """Send any request for the group; return topic id and results of each topic."""
        asked = [{"topic_id": topic_id, "partitions": of} for topic_id, of in topics]
        response = self.world.ask(api_key, version, group_id=self.group_id, topics=asked)
        return [(topic.topic_id, topic.partitions) for topic in response.results]

    def initialize(self, state_epoch: int = 1, start_offset: int = 0) -> str:
        one = self._ask(83, 0, state_epoch=state_epoch, start_offset=start_offset)
        return outcome(one.error_code, one.error_message)

    def read(self, leader_epoch: int = 0) -> str:
        """Return state epoch, start offset and batches as "se 1 start 0: 0-0 state 2 c1", or the
        error.
        """
        one = self._ask(84, 0, leader_epoch=leader_epoch)
        if one.error_code:
            return outcome(one.error_code, one.error_message)
        return (
            f"se {one.state_epoch} start {one.start_offset}: {_state_batches(one.state_batches)}"
        ).rstrip(": ")

    @property
    def batches(self) -> str:
        """The batches as the current leader would read them."""
        one = self._ask(84, 0, leader_epoch=self.summary_fields.leader_epoch)
        assert one.error_code == 0, one
        return _state_batches(one.state_batches)

    def write(
        self,
        *batches: tuple[int, int, int, int],
        state_epoch: int = 1,
        leader_epoch: int = 0,
        start_offset: int = -1,
        delivery_complete_count: int = -1,
        version: int = 1,
    ) -> str:
        """Write batches, given as (first offset, last offset, state, delivery count); return the
        error.
        """
        names = ("first_offset", "last_offset", "delivery_state", "delivery_count")
        fields: dict[str, Any] = {
            "state_epoch": state_epoch,
            "leader_epoch": leader_epoch,
            "start_offset": start_offset,
            "state_batches": [dict(zip(names, one, strict=True)) for one in batches],
            "delivery_complete_count": delivery_complete_count,
        }
        one = self._ask(85, version, **fields)
        return outcome(one.error_code, one.error_message)

    def delete(self) -> str:
        one = self._ask(86, 0)
        return outcome(one.error_code, one.error_message)

    @property
    def summary_fields(self) -> Any:
        one = self._ask(87, 1, leader_epoch=0)
        assert one.error_code == 0, one
        return one

    @property
    def summary(self) -> str:
        """The summary (ReadShareGroupStateSummary) as "start 0 complete 10", or the error."""
        one = self._ask(87, 1, leader_epoch=0)
        if one.error_code:
            return outcome(one.error_code, one.error_message)
        return f"start {one.start_offset} complete {one.delivery_complete_count}"


def _state_batches(batches: Sequence[Any]) -> str:
    return ", ".join(
        f"{one.first_offset}-{one.last_offset} state {one.delivery_state} c{one.delivery_count}"
        for one in batches
    )
