"""What the pages show, and the JSON API returns; None for an unknown value.

Each view is typed here once: a template renders it, and msgspec writes it as JSON and describes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic, Literal, TypeVar

from msgspec import Struct

from headrace.client.configs import Config
from headrace.client.share_state import SharePartitionState, Span, State
from headrace.client.workers import Failure, RunningRecord, TaskState

from .schemas import Data

S = TypeVar("S")
T = TypeVar("T")


class Page(Struct, Generic[T]):
    """A page of a list.

    :param count: the rows on all pages
    :param page: from 1
    """

    rows: Sequence[T]
    count: int
    page: int
    page_count: int

    def of(self, rows: Sequence[S]) -> Page[S]:
        """Return this page with other rows."""
        return Page(rows, self.count, self.page, self.page_count)


class Point(Struct, gc=False):  # there are many
    """A group or topic at one time."""

    time_ms: int
    lag: float | None = None
    time_lag_ms: float | None = None
    done_per_s: float | None = None
    produced_per_s: float | None = None


class Note(Struct):
    """A sentence about what needs attention.

    :param group_id: null for one about all groups without members
    :param topic: where to look next, such as at dead letters
    """

    kind: Literal["paused", "stuck", "letters", "late", "growing", "idle"]
    group_id: str | None
    text: str
    topic: str | None = None


class GroupSummary(Struct):
    """A group in a list.

    :param group_type: classic, consumer, share or streams
    :param produced_per_s: in the partitions whose lag is known, if there are some
    :param seconds_to_zero: until what waits is finished; -1 if the lag does not shrink
    """

    group_id: str
    group_type: str
    group_state: str
    member_count: int
    lag: int | None
    time_lag_ms: int | None
    done_per_s: float | None
    produced_per_s: float | None
    seconds_to_zero: float | None


class TopicSummary(Struct):
    """A topic in a list.

    :param end_offset_sum: of its partitions
    :param group_count: of the groups that have read it
    :param dead_letters_of: the groups whose dead-letter queue it is
    :param size_bytes: of its first replicas on disk
    :param retention_ms: the age at which records are deleted; -1 for never
    :param cleanup_policy: delete, compact, or both
    """

    topic: str
    partition_count: int
    is_internal: bool
    end_offset_sum: int | None
    produced_per_s: float | None
    group_count: int
    dead_letters_of: Sequence[str] = ()
    size_bytes: int | None = None
    retention_ms: int | None = None
    cleanup_policy: str | None = None


class Totals(Struct):
    """The sums over all topics, and over the groups with members.

    :param active_group_count: of the groups with members
    """

    group_count: int
    active_group_count: int
    topic_count: int
    time_lag_ms: int | None
    done_per_s: float | None
    produced_per_s: float | None


class Overview(Struct):
    """The cluster, and what needs attention.

    :param time_ms: when the cluster was seen, since the epoch
    :param took_ms: the time that the brokers took to answer
    :param problem: why the cluster was not seen since then
    :param failed_login_count: wrong passwords and tokens since the start of the page
    :param groups: those with members that are furthest behind
    :param topics: the busiest ones
    :param warnings: what could not be determined, one line each
    """

    time_ms: int
    took_ms: int
    cluster_id: str | None
    broker_count: int
    problem: str | None
    failed_login_count: int
    totals: Totals
    notes: Sequence[Note]
    groups: Sequence[GroupSummary]
    topics: Sequence[TopicSummary]
    warnings: Sequence[str]


class PartitionOfGroup(Struct):
    """A partition of a group.

    :param start_offset: of a share group
    :param committed_offset: of another group
    :param members: ids of the members it is assigned to
    :param share: of a share group
    """

    topic: str
    partition: int
    start_offset: int | None
    committed_offset: int | None
    end_offset: int | None
    lag: int | None
    time_lag_ms: int | None
    members: Sequence[str]
    share: SharePartitionState | None


class MemberOfGroup(Struct):
    """A member of a group.

    :param partitions: topic → partitions
    """

    member_id: str
    client_id: str
    host: str
    partitions: Mapping[str, Sequence[int]]


class Group(Struct):
    """A group, with a page of its partitions.

    :param summary: as the groups are listed
    :param tells_in_flight: whether the broker tells which records are held; null without partitions
    :param spans_limit: the largest number of spans of a partition
    :param configs: null if the broker does not tell them
    :param dead_letter_queue: the topic of its dead letters
    :param history: of the last half hour, or longer
    :param warnings: what could not be determined, one line each
    """

    group_id: str
    group_type: str
    group_state: str
    summary: GroupSummary | None
    notes: Sequence[Note]
    partitions: Page[PartitionOfGroup]
    tells_in_flight: bool | None
    spans_limit: int
    members: Sequence[MemberOfGroup]
    configs: Sequence[Config] | None
    dead_letter_queue: str | None
    history: Sequence[Point]
    warnings: Sequence[str]


class PartitionOfTopic(Struct):
    """A partition of a topic.

    :param leader: the id of its broker; -1 without one
    """

    partition: int
    leader: int
    replicas: Sequence[int]
    isr: Sequence[int]
    start_offset: int | None
    end_offset: int | None


class Topic(Struct):
    """A topic, with a page of its partitions.

    :param summary: as the topics are listed
    :param configs: null if the broker does not tell them
    :param groups: those that have read it
    :param may_have_letters: whether groups use it as their dead-letter queue, or may do so
    :param history: of the last half hour, or longer
    :param warnings: what could not be determined, one line each
    """

    topic: str
    summary: TopicSummary | None
    topic_id: str
    is_internal: bool
    partitions: Page[PartitionOfTopic]
    configs: Sequence[Config] | None
    groups: Sequence[GroupSummary]
    may_have_letters: bool
    history: Sequence[Point]
    warnings: Sequence[str]


class Standing(Struct):
    """The state of a record in a share group.

    :param kind: unknown if the group has not begun with the partition, or the broker does not tell
    :param span: in flight, that has the record
    """

    group_id: str
    kind: State | Literal["ahead", "unknown"]
    span: Span | None = None


class ShownLetter(Struct):
    """What a dead letter says of its record.

    :param group_id: the share group that has given it up
    :param attempt: the number of the last attempt, if a worker has written the letter; so are the
        fields below
    :param exception: the type of what its function has raised
    """

    source_topic: str
    source_partition: int
    source_offset: int
    group_id: str | None
    delivery_count: int | None
    reason: str | None
    attempt: int | None
    worker: str | None
    exception: str | None
    traceback: str | None


class ShownRecord(Struct):
    """A record.

    :param headers: name and value
    :param value_bytes: the size of its whole value
    :param is_cut: whether its key, value or headers are not whole
    :param standing: with the share groups of its topic
    :param letter: what it says as a dead letter; null for other records
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: Data | None
    value: Data | None
    headers: Sequence[tuple[str, Data | None]]
    value_bytes: int
    is_cut: bool
    standing: Sequence[Standing] = ()
    letter: ShownLetter | None = None


class Records(Struct):
    """A page of the records of a topic.

    :param compared: the number of records that were compared with the filters
    :param complete: whether all records up to the end were compared
    :param next: the address of the next page
    :param groups: the share groups whose standing is told
    :param warnings: what could not be read, one line each
    """

    records: Sequence[ShownRecord]
    compared: int
    complete: bool
    next: str | None
    partition_count: int
    groups: Sequence[str]
    warnings: Sequence[str]


class RunningRedrive(Struct):
    """A redrive of dead letters that runs, or has ended.

    :param read: the letters that were read, of ``total``
    :param outcome: a sentence, once it has ended
    """

    queue: str
    read: int = 0
    total: int = 0
    outcome: str | None = None


class Letters(Struct):
    """A page of the dead letters of a queue.

    :param queues: the dead-letter queues of the cluster
    :param records: the letters, the newest first unless ``start`` says otherwise
    :param compared: the number of records that were compared with the filters
    :param complete: whether all records up to the end were compared
    :param next: the address of the next page
    :param redrives: of this queue
    :param warnings: what could not be read, one line each
    """

    queue: str
    queues: Sequence[TopicSummary]
    records: Sequence[ShownRecord]
    compared: int
    complete: bool
    next: str | None
    redrives: Sequence[RunningRedrive]
    warnings: Sequence[str]


class Hit(Struct):
    """What a search has found.

    :param address: of its page
    """

    kind: Literal["group", "topic", "task", "record"]
    name: str
    address: str


class Hits(Struct):
    """What a search has found, the best first."""

    hits: Sequence[Hit]


WorkerStatus = Literal["working", "stopping", "silent", "gone"]


class WorkerOfTasks(Struct):
    """A worker, as it tells of itself.

    :param status: silent: it has not told anything for half a minute; gone: for a minute
    :param started_ms: since the epoch
    :param seen_ms: when it last told something
    """

    worker: str
    status: WorkerStatus
    tasks: Sequence[str]
    started_ms: int
    seen_ms: int


class Task(Struct):
    """A task.

    :param worker_count: without those that are gone
    :param numbers_age_ms: of the oldest numbers of these, if two reports have not come
    :param lag: of its group
    :param total: the sums over these workers, without records and failures
    """

    worker_count: int
    numbers_age_ms: int | None
    lag: int | None
    time_lag_ms: int | None
    total: TaskState


class RunningOfTask(Struct):
    """A record that a worker processes."""

    task: str
    worker: str
    record: RunningRecord


class FailureOfTask(Struct):
    """A record that a worker could not process."""

    task: str
    worker: str
    failure: Failure


class Tasks(Struct):
    """A page of the tasks, and what their workers do.

    :param time_ms: when the cluster was seen, since the epoch
    :param running: of the tasks on the page, the longest first
    :param failures: of the tasks on the page, the newest first
    :param workers: all of the cluster
    """

    time_ms: int
    tasks: Page[Task]
    running: Sequence[RunningOfTask]
    failures: Sequence[FailureOfTask]
    workers: Sequence[WorkerOfTasks]


class Change(Struct):
    """One thing that an action changes."""

    what: str
    before: str
    after: str


class Preview(Struct):
    """An action, and what it changes.

    :param title: a sentence, in the imperative
    :param cautions: warnings about the change, one line each
    :param outcome: a sentence about what was done; null if nothing was
    """

    title: str
    changes: Sequence[Change]
    cautions: Sequence[str]
    executed: bool
    outcome: str | None


class Error(Struct):
    """Why a request cannot be answered."""

    error: str
