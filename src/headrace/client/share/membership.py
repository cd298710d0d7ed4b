"""The membership of a share group: heartbeats, the assignment, and the topics of both (KIP-932)."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import Any
from uuid import UUID, uuid4
from weakref import WeakValueDictionary

from headrace.client.cluster import Cluster, TopicMetadata
from headrace.client.coordinators import ask_coordinator
from headrace.client.errors import ClientError, ConnectionFailed, RequestRefused, error_name
from headrace.log_lines import get_logger
from headrace.protocol.api import ShareGroupHeartbeatRequest
from headrace.protocol.errors import ErrorCode
from headrace.protocol.partitions import TopicIdPartition, TopicPartition
from headrace.protocol.uuid_text import uuid_text

_log = get_logger(__name__)

_LEAVE_EPOCH = -1

# Errors after which the member joins again with epoch 0.
_REJOIN = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH}

_EAGER_INTERVAL_MS = 100
_MIN_INTERVAL_MS = 100
"""The shortest interval between heartbeats, whatever the broker says."""


class Trouble:
    """What keeps the members of this process from a cluster, such as a broker that restarts: one
    line when it begins, and one when all of them go on.

    :param servers: the addresses of the cluster
    """

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._kept: set[object] = set()

    @property
    def is_on(self) -> bool:
        """True while something keeps a member from its cluster."""
        return bool(self._kept)

    def begin(self, member: object, problem: object, *, is_told: bool = False) -> None:
        """Note that something keeps a member, or a part of it, from the cluster.

        :param is_told: another line has told it
        """
        if not self._kept and not is_told:
            _log.warning("%s", problem)
        self._kept.add(member)

    def end(self, member: object) -> None:
        """Note that a member, or a part of it, goes on."""
        if member in self._kept:
            self.forget(member)
            if not self._kept:
                _log.info("share groups of %s: in order again", self._servers)

    def forget(self, member: object) -> None:
        """Leave out a member that has ended."""
        self._kept.discard(member)


_troubles: WeakValueDictionary[str, Trouble] = WeakValueDictionary()


def trouble_of(cluster: Cluster) -> Trouble:
    """Return the trouble that all members of a cluster in this process share."""
    servers = cluster.bootstrap_servers
    return _troubles.setdefault(servers, Trouble(servers))


class Membership:
    """A member of a share group. A task sends its heartbeats.

    :param names: of the topics to subscribe to; may be replaced, which the next heartbeat tells
    :ivar assignment: the assigned partitions; empty until the coordinator has assigned some
    :ivar ended: the error that has ended the membership
    :ivar problem: why this is not a member of the group now; None while it is one
    :ivar topics: topic id → topic; also of deleted ones, whose held records may still be
        acknowledged
    """

    def __init__(
        self,
        cluster: Cluster,
        group_id: str,
        names: Iterable[str],
        rack_id: str | None,
        trouble: Trouble,
    ) -> None:
        self.id = uuid_text(uuid4())
        self.names = tuple(sorted(set(names)))
        self.assignment: frozenset[TopicIdPartition] = frozenset()
        self.topics: dict[UUID, TopicMetadata] = {}
        self.ended: ClientError | None = None
        self.problem: str | None = None
        self._cluster = cluster
        self._group_id = group_id
        self._rack_id = rack_id
        self._trouble = trouble
        self._about = f"heartbeat of group {group_id}"
        self._epoch = 0
        self._announced: tuple[str, ...] = ()
        self._may_be_known = False
        """The coordinator may know the member, even if no answer has come."""
        self._interval_ms = 1000
        self._eager_heartbeats = 0
        self._changed = asyncio.Event()
        self._heartbeats: asyncio.Task[None] | None = None

    async def join(self) -> None:
        """Join the group.

        :raises ClientError: a topic does not exist, the group is of another type, or no broker
            answers
        """
        await self._cluster.topics(self.names)
        await self.learn_topics()
        await self._heartbeat()
        if self.ended is not None:
            raise self.ended
        self._heartbeats = asyncio.create_task(
            self._send_heartbeats(), name=f"headrace-heartbeat-{self._group_id}"
        )

    @property
    def has_joined(self) -> bool:
        """True once :meth:`join` has succeeded."""
        return self._heartbeats is not None

    async def stop(self) -> None:
        """Send no more heartbeats."""
        if self._heartbeats is not None:
            self._heartbeats.cancel()
            await asyncio.wait([self._heartbeats])
        self._trouble.forget(self)

    async def leave(self) -> None:
        """Leave the group, if the coordinator may know the member."""
        if self.ended is None and self._may_be_known:
            await self._send(_LEAVE_EPOCH, None)
            self._epoch, self._may_be_known = 0, False

    async def wait_for_assignment(self, timeout_ms: int) -> bool:
        """Wait until partitions are assigned.

        :returns: whether some are, within ``timeout_ms``
        :raises ClientError: the membership has ended
        """
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while not self.assignment and self.ended is None:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            pass
        if self.ended is not None:
            raise self.ended
        return bool(self.assignment)

    # -- heartbeats

    async def _send_heartbeats(self) -> None:
        while self.ended is None:
            await asyncio.sleep(self._delay_ms() / 1000)
            try:
                await self._heartbeat()
            except ConnectionFailed as failure:
                self._miss(failure)
            except ClientError as error:
                self.ended = error
            except Exception as error:  # else the consumer would wait for ever
                self.ended = ClientError(f"{self._about}: {error!r}")
        self.problem = str(self.ended)
        self._trouble.forget(self)
        self._changed.set()

    def _miss(self, problem: object) -> None:
        self.problem = f"{self._about}: {problem}"
        self._trouble.begin(self, self.problem)

    def _delay_ms(self) -> int:
        if self.assignment:
            return self._interval_ms
        # The first members of a group get an empty assignment until the share-partitions are
        # initialized. They repeat the heartbeat soon, and then at growing intervals.
        return min(self._interval_ms, _EAGER_INTERVAL_MS * (1 + self._eager_heartbeats // 10))

    async def _heartbeat(self) -> None:
        names, self._may_be_known = self.names, True
        is_news = self._epoch == 0 or names != self._announced
        response = await self._send(self._epoch, names if is_news else None)
        code = response.error_code
        if not code:
            self._announced = names  # not those of now: they may have changed meanwhile
            self._epoch = response.member_epoch
            self._interval_ms = max(_MIN_INTERVAL_MS, response.heartbeat_interval_ms)
            if response.assignment is not None:
                self.assignment = frozenset(
                    (topic.topic_id, number)
                    for topic in response.assignment.topic_partitions
                    for number in topic.partitions
                )
            self._eager_heartbeats = 0 if self.assignment else self._eager_heartbeats + 1
            self.problem = None
            self._trouble.end(self)
            if any(topic_id not in self.topics for topic_id, _ in self.assignment):
                await self.learn_topics()
        elif code in _REJOIN or code == ErrorCode.UNKNOWN_SERVER_ERROR:
            if code in _REJOIN:
                self._epoch, self.assignment = 0, frozenset()
            self._miss(error_name(code))
        else:
            needs = f"READ on group '{self._group_id}'"
            if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                needs = f"DESCRIBE on the topics {', '.join(names)}"
            self.ended = RequestRefused(
                f"joining share group '{self._group_id}'", code, response.error_message, needs
            )
        self._changed.set()

    async def _send(self, member_epoch: int, names: tuple[str, ...] | None) -> Any:
        request = ShareGroupHeartbeatRequest(
            self._group_id, self.id, member_epoch, self._rack_id, names
        )
        return await ask_coordinator(self._cluster, self._group_id, request)

    # -- topics

    async def learn_topics(self) -> None:
        """Look up the topics and their leaders, if a broker answers."""
        with suppress(ConnectionFailed):  # whoever needs it learns that no broker answers
            metadata = await self._cluster.metadata(self.names)
            self.topics |= {
                t.topic_id: t for t in metadata.values() if isinstance(t, TopicMetadata)
            }

    def named(self, partition: TopicIdPartition) -> TopicPartition:
        """Return a partition of a topic that is known, by the topic's name."""
        return self.topics[partition[0]].name, partition[1]

    def _leader(self, partition: TopicIdPartition) -> int:
        topic = self.topics.get(partition[0])
        return -1 if topic is None else topic.leaders.get(partition[1], -1)

    def have_leaders(self) -> bool:
        """Return whether all assigned partitions have one that is known."""
        return all(self._leader(partition) >= 0 for partition in self.assignment)

    async def partitions_by_leader(
        self, paused: Collection[TopicPartition]
    ) -> dict[int, set[TopicIdPartition]]:
        """Return the assigned partitions that have a leader and are not paused."""
        if not self.have_leaders():
            await self.learn_topics()
        led: dict[int, set[TopicIdPartition]] = {}
        for partition in self.assignment:
            leader = self._leader(partition)
            if leader >= 0 and self.named(partition) not in paused:
                led.setdefault(leader, set()).add(partition)
        return led
