"""The clients of the broker: an administrator, producers, and members of share groups."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from itertools import count
from typing import Any
from uuid import UUID

from kio.schema.alter_share_group_offsets.v0 import request as alter_offsets
from kio.schema.create_partitions.v3 import request as create_partitions
from kio.schema.create_topics.v7 import request as create_topics
from kio.schema.delete_groups.v2 import request as delete_groups
from kio.schema.delete_records.v2 import request as delete_records
from kio.schema.delete_share_group_offsets.v0 import request as delete_offsets
from kio.schema.delete_topics.v6 import request as delete_topics
from kio.schema.describe_share_group_offsets.v1 import request as describe_offsets
from kio.schema.init_producer_id.v5 import request as init_producer_id
from kio.schema.produce.v13 import request as produce
from kio.schema.share_acknowledge.v2 import request as share_acknowledge
from kio.schema.share_fetch.v2 import request as share_fetch
from kio.schema.share_group_heartbeat.v1 import request as share_heartbeat

from headrace.protocol.errors import ErrorCode
from headrace.share.acknowledgement import ACCEPT, GAP, REJECT, RELEASE, RENEW
from tests.kio_messages.share_inspection import ShareAcknowledgeRequest
from tests.wire_client import batch

from .network import GOOD, Network, Wire
from .shelf import Partition, each
from .witness import Witness

NO_TIME, SECOND = timedelta(0), timedelta(seconds=1)
Fate = Callable[[], str]
"""Draws the fate of a request."""


class Client:
    """A client with one request under way at a time, on a wire that it renews after it broke.

    :ivar is_waiting: whether a request is not answered yet
    """

    def __init__(self, network: Network, name: str) -> None:
        self.network, self.name = network, name
        self.is_waiting = False
        self._wire: Wire | None = None

    @property
    def wire(self) -> Wire:
        if self._wire is None or not self._wire.is_open:
            self._wire = self.network.connect(self.name)
        return self._wire

    def send(self, request: Any, on_answer: Callable[[Any], None], fate: str = GOOD) -> None:
        def answered(answer: Any) -> None:
            self.is_waiting = False
            on_answer(answer)

        self.is_waiting = True
        self.wire.send(request, answered, fate)

    def call(self, request: Any) -> Any:
        """Send a request that need not wait; return its answer, or None when the power goes off."""
        answers: list[Any] = []
        self.send(request, answers.append)
        self.network.machine.loop.settle()
        return answers[0] if answers else None

    def abandon_wire(self) -> Wire | None:
        """Open another connection next time; the broker does not notice the end of this one."""
        wire, self._wire = self._wire, None
        return wire


class Administrator(Client):
    """An administrator, whose requests are answered at once."""

    def create_topic(self, name: str, partitions: int) -> Any:
        topic = create_topics.CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=1, assignments=(), configs=()
        )
        return self.call(create_topics.CreateTopicsRequest(topics=(topic,)))

    def delete_topic(self, topic_id: UUID) -> Any:
        state = delete_topics.DeleteTopicState(name=None, topic_id=topic_id)
        return self.call(delete_topics.DeleteTopicsRequest(topics=(state,), timeout=SECOND))

    def grow_topic(self, name: str, total: int) -> Any:
        topic = create_partitions.CreatePartitionsTopic(name=name, count=total, assignments=None)
        return self.call(
            create_partitions.CreatePartitionsRequest(
                topics=(topic,), timeout=SECOND, validate_only=False
            )
        )

    def delete_records(self, name: str, partition: int, before_offset: int) -> Any:
        asked = delete_records.DeleteRecordsPartition(
            partition_index=partition, offset=before_offset
        )
        topic = delete_records.DeleteRecordsTopic(name=name, partitions=(asked,))
        return self.call(delete_records.DeleteRecordsRequest(topics=(topic,), timeout=SECOND))

    def alter_offsets(self, group_id: str, name: str, starts: Mapping[int, int]) -> Any:
        asked = tuple(
            alter_offsets.AlterShareGroupOffsetsRequestPartition(
                partition_index=partition, start_offset=offset
            )
            for partition, offset in starts.items()
        )
        topic = alter_offsets.AlterShareGroupOffsetsRequestTopic(topic_name=name, partitions=asked)
        return self.call(
            alter_offsets.AlterShareGroupOffsetsRequest(group_id=group_id, topics=(topic,))
        )

    def delete_offsets(self, group_id: str, name: str) -> Any:
        topic = delete_offsets.DeleteShareGroupOffsetsRequestTopic(topic_name=name)
        return self.call(
            delete_offsets.DeleteShareGroupOffsetsRequest(group_id=group_id, topics=(topic,))
        )

    def delete_group(self, group_id: str) -> Any:
        return self.call(delete_groups.DeleteGroupsRequest(groups_names=(group_id,)))

    def describe_offsets(self, group_id: str, topics: Sequence[tuple[str, int]]) -> Any:
        asked = tuple(
            describe_offsets.DescribeShareGroupOffsetsRequestTopic(
                topic_name=name, partitions=tuple(range(partitions))
            )
            for name, partitions in topics
        )
        group = describe_offsets.DescribeShareGroupOffsetsRequestGroup(
            group_id=group_id, topics=asked
        )
        return self.call(describe_offsets.DescribeShareGroupOffsetsRequest(groups=(group,)))


class Producer(Client):
    """An idempotent producer, which repeats a batch until it is answered.

    :param witness: hears what is sent and what was acknowledged
    """

    def __init__(self, network: Network, name: str, witness: Witness) -> None:
        super().__init__(network, name)
        self._witness = witness
        self._producer_id = -1
        self._sequences: dict[Partition, int] = {}
        self._unacknowledged: tuple[Partition, list[bytes]] | None = None
        self._values = count()

    def act(
        self, rng: random.Random, partitions: Sequence[Partition], fate: Fate, now_ms: int
    ) -> str:
        if self._producer_id < 0:
            request = init_producer_id.InitProducerIdRequest(
                transactional_id=None, transaction_timeout=SECOND
            )
            self.send(request, self._initialized, fate())
            return "asks for an id"
        if self._unacknowledged is None:
            values = [
                b"%s-%d" % (self.name.encode(), next(self._values))
                for _ in range(rng.choice((1, 1, 2, 5, 20)))
            ]
            self._unacknowledged = rng.choice(partitions), values
            self._witness.sent.setdefault(self._unacknowledged[0], set()).update(values)
        where, values = self._unacknowledged
        sequence = self._sequences.get(where, 0)
        records = batch(
            values,
            producer_id=self._producer_id,
            producer_epoch=0,
            base_sequence=sequence,
            timestamp_ms=now_ms,
        )
        data = produce.PartitionProduceData(index=where[1], records=records)
        topic = produce.TopicProduceData(topic_id=where[0], partition_data=(data,))
        request = produce.ProduceRequest(acks=-1, timeout=SECOND, topic_data=(topic,))
        self.send(request, self._acknowledged, fate())
        return f"sends {len(values)} to {where[1]} from sequence {sequence}"

    def _initialized(self, answer: Any) -> None:
        if answer is not None:
            self._producer_id = answer.producer_id

    def _acknowledged(self, answer: Any) -> None:
        if answer is None or self._unacknowledged is None:
            return
        (where, values), self._unacknowledged = self._unacknowledged, None
        partition = answer.responses[0].partition_responses[0]
        code = ErrorCode(int(partition.error_code))
        if code == ErrorCode.UNKNOWN_TOPIC_ID:
            return
        assert not code, f"{self.name} is answered with {code.name}"
        self._sequences[where] = self._sequences.get(where, 0) + len(values)
        known = self._witness.produced.setdefault(where, {})
        for offset, value in enumerate(values, partition.base_offset):
            assert known.setdefault(offset, value) == value, f"offset {offset} is given twice"


class Member(Client):
    """A member of a share group, whose knowledge may be out of date.

    :ivar held: the offsets that it believes to hold
    """

    tolerated: frozenset[ErrorCode] = frozenset()
    """Errors of heartbeats that a failing disk may cause."""

    def __init__(
        self, network: Network, member_id: str, group_id: str, topics: Sequence[str]
    ) -> None:
        super().__init__(network, member_id)
        self.group_id, self.topics = group_id, tuple(topics)
        # a fetch that waits must not hold them up
        self.heartbeats = Client(network, f"{member_id}-heartbeats")
        self.member_epoch = 0
        self.next_heartbeat_ms = 0
        self.assignment: set[Partition] = set()
        self.held: dict[Partition, set[int]] = {}
        self._session_epoch = 0
        self._session: set[Partition] = set()
        self._unanswered: Any = None

    # Membership

    def heartbeat(self, now_ms: int, fate: str = GOOD, *, leave: bool = False) -> None:
        joins = self.member_epoch == 0
        request = share_heartbeat.ShareGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.name,
            member_epoch=-1 if leave else self.member_epoch,
            subscribed_topic_names=self.topics if joins and not leave else None,
        )

        def answered(answer: Any) -> None:
            if answer is None:
                return
            code = ErrorCode(int(answer.error_code))
            if code or leave:
                expected = (
                    ErrorCode.UNKNOWN_MEMBER_ID,
                    ErrorCode.GROUP_ID_NOT_FOUND,
                    ErrorCode.FENCED_MEMBER_EPOCH,
                )
                assert leave or code in expected or code in self.tolerated, (
                    f"a heartbeat of {self.name} is answered with {code.name}"
                )
                self.member_epoch, self.next_heartbeat_ms = 0, now_ms
                self.assignment = set()
                return
            self.member_epoch = answer.member_epoch
            self.next_heartbeat_ms = now_ms + answer.heartbeat_interval // timedelta(milliseconds=1)
            if answer.assignment is not None:
                self.assignment = {
                    (topic.topic_id, partition)
                    for topic in answer.assignment.topic_partitions
                    for partition in topic.partitions
                }

        self.heartbeats.send(request, answered, fate)

    # Fetching

    def fetch(
        self,
        rng: random.Random,
        fate: str = GOOD,
        *,
        max_wait_ms: int = 0,
        acknowledge: bool = False,
    ) -> str:
        """Send ShareFetch for the assigned partitions, with acknowledgements of some records that
        it holds.
        """
        if self._unanswered is not None:
            return self._again(rng, fate)
        opens = self._session_epoch == 0
        acknowledged = self._choose(rng, False) if acknowledge and not opens else {}
        added = self.assignment if opens else self.assignment - self._session
        forgotten = set() if opens else self._session - self.assignment
        self._session = (self._session | added | set(acknowledged)) - forgotten
        request = share_fetch.ShareFetchRequest(
            group_id=self.group_id,
            member_id=self.name,
            share_session_epoch=self._session_epoch,
            max_wait=timedelta(milliseconds=max_wait_ms),
            min_bytes=rng.choice((0, 1, 1, 1, 300)),
            max_bytes=1 << 20,
            max_records=rng.choice((1, 3, 10, 50, 500)),
            batch_size=rng.choice((1, 5, 500)),
            share_acquire_mode=rng.randint(0, 1),
            topics=_by_topic(
                share_fetch,
                "FetchTopic",
                "FetchPartition",
                {**dict.fromkeys(added, ()), **acknowledged},
            ),
            forgotten_topics_data=tuple(
                share_fetch.ForgottenTopic(topic_id=topic_id, partitions=(partition,))
                for topic_id, partition in sorted(forgotten)
            ),
        )
        self._send(request, fate)
        return f"fetches from {sorted(p for _, p in self._session)}{_said(acknowledged)}"

    def acknowledge(self, rng: random.Random, fate: str = GOOD) -> str:
        """Send ShareAcknowledge for some records that it holds."""
        if self._unanswered is not None:
            return self._again(rng, fate)
        renew = rng.random() < 0.4
        acknowledged = self._choose(rng, renew)
        return self._acknowledge(acknowledged, renew, self._session_epoch, fate)

    def acknowledge_all(self, acknowledge_type: int = ACCEPT) -> str:
        """Accept, reject or renew every record that it holds."""
        batches = {
            where: tuple((first, last, (acknowledge_type,)) for first, last in _runs(offsets))
            for where, offsets in self.held.items()
        }
        return self._acknowledge(batches, acknowledge_type == RENEW, self._session_epoch, GOOD)

    def close_session(self, rng: random.Random, fate: str = GOOD) -> str:
        """End the session and give back the rest."""
        return self._acknowledge(self._choose(rng, False), False, -1, fate)

    def _acknowledge(
        self, acknowledged: dict[Partition, Any], renew: bool, epoch: int, fate: str
    ) -> str:
        if self._session_epoch == 0:
            return "has no session"
        request = ShareAcknowledgeRequest(
            group_id=self.group_id,
            member_id=self.name,
            share_session_epoch=epoch,
            is_renew_ack=renew,
            topics=_by_topic(
                share_acknowledge, "AcknowledgeTopic", "AcknowledgePartition", acknowledged
            ),
            uncounted_release=self._session_epoch % 3 == 0,
        )
        self._send(request, fate)
        return f"{'closes its session' if epoch < 0 else 'acknowledges'}{_said(acknowledged)}"

    def _choose(self, rng: random.Random, renew: bool) -> dict[Partition, tuple[Any, ...]]:
        """Return acknowledgements of some records that it holds, now and then of others."""
        chosen: dict[Partition, tuple[Any, ...]] = {}
        for where in sorted(self.held):
            offsets = self.held[where]
            if rng.random() < 0.02:
                offsets = offsets | {max(offsets, default=0) + 1}
            some = (
                {offset for offset in sorted(offsets) if rng.random() < 0.7}
                if rng.random() < 0.5
                else offsets
            )
            kinds = (ACCEPT, ACCEPT, ACCEPT, RELEASE, RELEASE, REJECT, GAP) + (
                (RENEW,) * 4 if renew else ()
            )
            batches = []
            for first, last in _runs(some):
                size = 1 if rng.random() < 0.5 else last - first + 1
                batches.append((first, last, tuple(rng.choice(kinds) for _ in range(size))))
            if batches:
                chosen[where] = tuple(batches)
        return chosen

    def _send(self, request: Any, fate: str) -> None:
        self._unanswered = request
        self.send(request, lambda answer: self._answered(request, answer), fate)

    def _again(self, rng: random.Random, fate: str) -> str:
        """Handle a missing answer: repeat the request, on this connection or another, or give up
        the session.
        """
        request = self._unanswered
        if rng.random() < 0.5:
            self.abandon_wire()
        if rng.random() < 0.3:
            self._unanswered, self._session_epoch = None, 0
            return "gives up on its session"
        self._send(request, fate)
        return "tries again"

    def _answered(self, request: Any, answer: Any) -> None:
        if answer is None or request is not self._unanswered:
            return
        self._unanswered = None
        if answer.error_code:
            self._session_epoch = 0
            return
        self._let_go(request, answer)
        self._session_epoch = (
            0 if request.share_session_epoch < 0 else request.share_session_epoch + 1
        )
        if self._session_epoch == 0:
            self.held.clear()
        if isinstance(request, share_fetch.ShareFetchRequest):
            for topic in answer.responses:
                for partition in topic.partitions:
                    for run in partition.acquired_records:
                        held = self.held.setdefault(
                            (topic.topic_id, partition.partition_index), set()
                        )
                        held.update(range(run.first_offset, run.last_offset + 1))

    def _let_go(self, request: Any, answer: Any) -> None:
        """Forget acknowledged records, except renewed ones; after a refusal they may or may not be
        held.
        """
        refused = {
            (topic.topic_id, partition.partition_index)
            for topic in answer.responses
            for partition in topic.partitions
            if getattr(partition, "acknowledge_error_code", 0) or partition.error_code
        }
        for topic in request.topics:
            for partition in topic.partitions:
                where = (topic.topic_id, partition.partition_index)
                done = {
                    offset
                    for offset, kind in each(partition.acknowledgement_batches)
                    if kind != RENEW
                }
                held = self.held.get(where, set()) - done
                if where in refused or not held:
                    self.held.pop(where, None)
                else:
                    self.held[where] = held


def _by_topic(
    module: Any, topic_type: str, partition_type: str, batches: dict[Partition, Any]
) -> tuple[Any, ...]:
    """Return the topics of a share request, from the acknowledgements of each partition."""
    topics: dict[UUID, list[Any]] = {}
    for topic_id, partition in sorted(batches):
        acknowledged = tuple(
            module.AcknowledgementBatch(
                first_offset=first, last_offset=last, acknowledge_types=types
            )
            for first, last, types in batches[topic_id, partition]
        )
        one = getattr(module, partition_type)(
            partition_index=partition, acknowledgement_batches=acknowledged
        )
        topics.setdefault(topic_id, []).append(one)
    return tuple(
        getattr(module, topic_type)(topic_id=topic_id, partitions=tuple(partitions))
        for topic_id, partitions in topics.items()
    )


def _runs(offsets: set[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for offset in sorted(offsets):
        if runs and runs[-1][1] + 1 == offset:
            runs[-1] = (runs[-1][0], offset)
        else:
            runs.append((offset, offset))
    return runs


def _said(acknowledged: dict[Partition, Any]) -> str:
    words = (
        f"{where[1]}: {' '.join(f'{f}-{la}={t}' for f, la, t in runs)}"
        for where, runs in acknowledged.items()
    )
    return " with " + "; ".join(words) if acknowledged else ""
