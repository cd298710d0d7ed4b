"""The progress of a query: offsets, committed to a group for other tools, and counts of its tasks.

Spark offers the tasks of a Python source no way to report numbers. So the reader listens
(:mod:`headrace.spark.driver_server`), and a task that is done sends its counts. Only the query's
progress depends on them: if the reader cannot be reached, its numbers are missing.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from headrace.client import ClientError, Cluster
from headrace.client.errors import has_code
from headrace.client.groups import SHARE, describe_group
from headrace.client.loop_thread import LoopThread
from headrace.client.offsets import commit_offsets, committed_offsets
from headrace.log_lines import get_logger
from headrace.protocol.errors import ErrorCode
from headrace.protocol.partitions import TopicPartition
from headrace.spark.driver_server import Address, DriverServer, exchange
from headrace.spark.errors import SourceError
from headrace.spark.option_parsing import ClusterThread
from headrace.spark.ordered.broker_log import Offsets

_log = get_logger(__name__)

CHECK_S = 5.0
"""Shortest interval between looks at the group's offsets."""
RETRY_S = 10.0
"""Shortest interval between commits after a failure, so that a coordinator that does not answer
does not delay the query."""

_HAS_MEMBERS = {
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.STALE_MEMBER_EPOCH,
}
_EMPTY = "Empty"
_CHOOSE_ANOTHER = "choose another kafka.group.id"


class GroupProgress:
    """Commits of a query's position to its group.

    A failure never stops the query: the next micro-batch commits what is missing. A warning tells
    once of another query that commits to the same group, in this application or elsewhere.
    """

    def __init__(self, thread: ClusterThread, group_id: str) -> None:
        self._thread = thread
        self._group_id = group_id
        self._committed: Offsets = {}
        self._not_before_s = 0.0
        self._next_check_s = 0.0

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit the next offset of each partition, where it has changed."""
        changed = {p: offset for p, offset in offsets.items() if self._committed.get(p) != offset}
        if not changed or time.monotonic() < self._not_before_s:
            return
        self._check_own([partition for partition in changed if partition in self._committed])
        outcomes = self._thread.run(commit_offsets(self._thread.cluster, self._group_id, changed))
        errors = [
            error
            for error in outcomes.values()
            # The next plan finds out that a partition does not exist any more.
            if error is not None and not has_code(error, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        ]
        if errors:
            text = str(errors[0])
            if has_code(errors[0], *_HAS_MEMBERS):
                text = (
                    f"group '{self._group_id}' has consumers of its own, so this query's offsets "
                    f"are not committed: {_CHOOSE_ANOTHER}"
                )
            _log.warning("%s", text)
            self._not_before_s = time.monotonic() + RETRY_S
        else:
            self._committed.update(changed)

    def _check_own(self, partitions: Sequence[TopicPartition]) -> None:
        """Warn if the group's offsets are not those that this query has committed."""
        if not partitions or time.monotonic() < self._next_check_s:
            return
        self._next_check_s = time.monotonic() + CHECK_S
        cluster, group_id = self._thread.cluster, self._group_id
        answer = self._thread.run(committed_offsets(cluster, {group_id: partitions}))[group_id]
        for (topic, number), at in () if isinstance(answer, ClientError) else answer.items():
            own = self._committed[topic, number]
            if at.offset != own:
                self._next_check_s = math.inf
                _log.warning(
                    "group '%s' has offset %d of %s-%d, where this query has committed %d: another "
                    "one commits to it, too, so that the lag of the group is that of neither. "
                    "Give each query a kafka.group.id of its own",
                    group_id,
                    at.offset,
                    topic,
                    number,
                    own,
                )
                return


async def check_group(cluster: Cluster, group_id: str) -> None:
    """Check that offsets can be committed to a group.

    :raises SourceError: it is a share group, or has members, which commit offsets themselves
    :raises ClientError: the coordinator does not answer
    """
    group = await describe_group(cluster, group_id)
    if group is None:
        return
    if group.type == SHARE:
        raise SourceError(
            f"'{group_id}' is a share group, which has no offsets to commit: {_CHOOSE_ANOTHER}"
        )
    if group.state != _EMPTY:
        raise SourceError(
            f"group '{group_id}' has consumers that commit offsets themselves: {_CHOOSE_ANOTHER}"
        )


_TIMEOUT_S = 2.0
_MAX_REPORT_BYTES = 4096


class TaskCounts(NamedTuple):
    """Counts of merges, in the terms of Kafka Streams' task metrics.

    :param enforced: records taken after a partition had none left, here and on its broker
    :param late: records whose timestamp was before the stream time
    :param stream_time_ms: the largest timestamp so far; -1 before the first record
    """

    records: int = 0
    enforced: int = 0
    late: int = 0
    stream_time_ms: int = -1


class ReportAddress(NamedTuple):
    """The address for reports about one micro-batch.

    :param batch: number of the micro-batch
    """

    server: Address
    batch: int


class ReportServer:
    """The reader's end: listens for reports from its creation on, and adds them up.

    It listens on the address from which the first of the bootstrap servers is reached.
    """

    def __init__(self, bootstrap_servers: str) -> None:
        self._thread = LoopThread("headrace-reports")
        self._server = DriverServer(self._add, _MAX_REPORT_BYTES)
        self._address = self._thread.run(self._server.listen_for_tasks(bootstrap_servers))
        self._lock = threading.RLock()
        self._batch = 0
        self._before = TaskCounts()
        self._reports: dict[int, TaskCounts] = {}
        self.stream_times_ms: dict[int, int] = {}
        """Task → the largest timestamp of its earlier micro-batches."""

    def next_batch(self) -> ReportAddress:
        """Return the address for the next micro-batch; earlier ones are no longer accepted."""
        with self._lock:
            self._before = self.totals()
            for task, counts in self._reports.items():
                before_ms = self.stream_times_ms.get(task, -1)
                self.stream_times_ms[task] = max(counts.stream_time_ms, before_ms)
            self._reports.clear()
            self._batch += 1
            return ReportAddress(self._address, self._batch)

    def totals(self) -> TaskCounts:
        """Return the sums over all tasks since the query was started, without a stream time.

        A task that ran twice counts once.
        """
        with self._lock:
            counts = zip(self._before, *self._reports.values(), strict=True)
            records, enforced, late, _ = map(sum, counts)
        return TaskCounts(records, enforced, late)

    def close(self) -> None:
        """Stop listening."""
        self._thread.close(_TIMEOUT_S, last=self._close())

    async def _close(self) -> None:
        self._server.close()

    async def _add(self, request: Any) -> dict[str, Any]:
        batch, task, counts = request
        with self._lock:
            if batch == self._batch:
                self._reports[int(task)] = TaskCounts(*map(int, counts))
        return {}


def send_report(address: ReportAddress, task: int, counts: TaskCounts) -> None:
    """Send the counts of a task's merge. They are dropped if they cannot be delivered."""
    try:
        exchange(address.server, [address.batch, task, counts], _TIMEOUT_S)
    except OSError as error:
        _log.info("the driver does not accept reports: %s", error)
