"""The durable state of a streams group: also its topology (KIP-1071)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from itertools import chain

from headrace.groups.catalog import TopicCatalog
from headrace.groups.heartbeats.state import FIRST_EPOCH, HeartbeatState, count
from headrace.groups.records import (
    STREAMS_RECORDS,
    ByRole,
    GroupRecord,
    RecordOfGroup,
    StreamsAssignment,
    StreamsEpoch,
    StreamsMember,
    TaskAssignment,
    Topology,
    each,
)

from .topics import required_topics, sources


class StreamsState(HeartbeatState[StreamsMember, StreamsEpoch, TaskAssignment, StreamsAssignment]):
    """The durable state of a streams group. Only :meth:`replay` changes it.

    A fourth epoch, the topology epoch, belongs to the topology. The recorded group epoch also has
    the validated topology epoch and the configs of the last assignment.

    :ivar topology: None before the first member
    :ivar required: the topics that the topology needs
    :ivar source_subtopologies: the id of the subtopology that reads a topic, by topic name
    """

    records = STREAMS_RECORDS
    no_member = StreamsMember(None, None, topology_epoch=-1)
    no_epoch = StreamsEpoch(FIRST_EPOCH, 0, 0)
    no_target = ByRole()
    no_current = StreamsAssignment()

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.topology: Topology | None = None
        # derived from these
        self.required: frozenset[str] = frozenset()
        self.source_subtopologies: dict[str, str] = {}
        # The number of members that have a task: active, and on a process in any role.
        self._active: Counter[tuple[str, int]] = Counter()
        self._on_process: Counter[tuple[str, str, int]] = Counter()

    @property
    def state_name(self) -> str:
        """Kafka's name for the state of the group. The cost is proportional to the members."""
        validated = self.group_epoch.validated_topology_epoch
        if self.members and (self.topology is None or self.topology.epoch != validated):
            return "NotReady"
        return super().state_name

    def is_free(self, subtopology_id: str, partition: int) -> bool:
        """Return whether a task is active on no member."""
        return (subtopology_id, partition) not in self._active

    def is_free_on(self, process_id: str, subtopology_id: str, partition: int) -> bool:
        """Return whether a process does not have a task, in any role."""
        return (process_id, subtopology_id, partition) not in self._on_process

    def epoch_without(self, member_ids: Collection[str], catalog: TopicCatalog) -> StreamsEpoch:
        """Return the group epoch when these members have left, whose topics the topology keeps."""
        return StreamsEpoch(self.epoch + 1, *self.group_epoch.field_values()[1:])

    def tombstones(self) -> Iterator[GroupRecord]:
        """Yield the records that delete the group."""
        yield from super().tombstones()
        yield STREAMS_RECORDS.other(self.group_id, None)

    # Replay ---------------------------------------------------------------------------------------

    def _count_member(self, member_id: str, change: int) -> None:
        super()._count_member(member_id, change)
        self._count_current(member_id, change)

    def _replay_other(self, record: RecordOfGroup) -> None:
        topology = self.topology = record.value
        subtopologies = () if topology is None else topology.subtopologies
        self.required = required_topics(subtopologies)
        self.source_subtopologies = {
            name: subtopology.subtopology_id
            for subtopology in subtopologies
            for name in sources(subtopology)
        }

    def _count_current(self, member_id: str, change: int) -> None:
        # The tasks of a member count for its process once its two records are known.
        member, current = self.members.get(member_id), self.current.get(member_id)
        if member is None or current is None:
            return
        for held in (current.assigned, current.pending_revocation):
            count(self._active, each(held.active), change)
            tasks = chain.from_iterable(map(each, held))
            count(self._on_process, ((member.process_id, *task) for task in tasks), change)
