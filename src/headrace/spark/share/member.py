"""The member of the share group that holds a query's acquisition locks."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from headrace.client import AcquiredRange, ClientError, RangeConsumer
from headrace.client.errors import is_missing_group
from headrace.client.loop_thread import LoopThread
from headrace.client.offsets import ShareOffset, share_offsets_of_topics
from headrace.log_lines import get_logger
from headrace.protocol.partitions import TopicPartition
from headrace.spark.driver_server import DriverServer, own_address
from headrace.spark.errors import SourceError, describe
from headrace.spark.pyspark_capabilities import HAS_ADMISSION_CONTROL
from headrace.spark.subscription import subscribed_topics

from .acquisitions import Acquisitions, Counts
from .options import ShareOptions, ensure_group_settings
from .outcomes import requested

_log = get_logger(__name__)

_MATCH_INTERVAL_S = 3.0
"""Interval of looking for new topics that match the pattern."""
_LAGS_IN_PROGRESS = 1000
"""Number of partitions up to which the progress has the lag of each."""
_CLOSE_TIMEOUT_S = 4.0
_RELEASE_TIMEOUT_S = 1.5
"""The part of it in which records are released without counting."""
_LEAVE_TIMEOUT_MS = 2000
"""The part of it in which the member leaves."""
_MAX_REQUEST_BYTES = 1 << 30


class ShareMember:
    """A member of a share group in the driver-side reader's process.

    It joins with :meth:`join`, takes outcomes from then on, and holds records until they are
    acknowledged. Creating one opens nothing. All methods are called from the reader's main thread.
    An event loop on a thread of its own does the work, so that heartbeats and lock renewals
    continue while Spark runs the micro-batch.

    :ivar id: distinguishes the micro-batches of this member from those of an earlier one
    :ivar receipt: text of the column ``receipt`` of its records, once it has joined
    """

    def __init__(self, options: ShareOptions) -> None:
        self.id = secrets.token_hex(8)
        self._options = options
        cluster = options.kafka.cluster()
        self._consumer = RangeConsumer(cluster, options.group_id, ())
        self._acquisitions = Acquisitions(self._consumer, options)
        self._server = DriverServer(self._take_outcomes, _MAX_REQUEST_BYTES)
        self.receipt = ""
        self._background: list[asyncio.Task[None]] = []
        self._thread = LoopThread("headrace-share")

    def join(self) -> None:
        """Join the group, unless the member has joined.

        :raises SourceError: the member cannot join
        """
        if self.has_joined:
            return
        try:
            self._thread.run(self._join())
        except (ClientError, SourceError) as error:
            self.close()
            raise SourceError(_with_advice(error)) from None

    @property
    def has_joined(self) -> bool:
        """True once the member has joined the group."""
        return bool(self._background)

    @property
    def counts(self) -> Counts:
        """Numbers of records since the query began."""
        return self._acquisitions.counts

    def acquire(self) -> list[AcquiredRange]:
        """Acquire the records of the next micro-batch.

        :returns: empty if there are none now; before pyspark 4.2, where such an answer ends
            :func:`headrace.spark.drain`, if the group has finished them all
        :raises ClientError: a broker refuses
        """
        acquisitions = self._acquisitions
        if HAS_ADMISSION_CONTROL:
            return self._thread.run(acquisitions.acquire())
        return self._thread.run(acquisitions.acquire_unless_finished())

    def stop_at_current_end(self) -> None:
        """Acquire only what the topics hold now (``Trigger.AvailableNow``).

        :raises SourceError: the member was assigned no partitions
        :raises ClientError: the cluster does not answer
        """
        self._thread.run(self._acquisitions.stop_at_current_end())

    def acknowledge_rest(self, ranges: Sequence[AcquiredRange]) -> None:
        """Apply ``outcome.default`` to what is still held of a micro-batch that has ended."""
        self._thread.run(self._acquisitions.acknowledge(ranges, self._options.default_outcome))

    def lag(self) -> dict[str, dict[str, int]]:
        """Return topic → partition → unfinished records, of the partitions whose lag is known.

        With very many partitions, topic → ``"sum"``.
        """
        cluster, topics = self._consumer.cluster, self._acquisitions.topics
        try:
            group_id = self._options.group_id
            return _by_topic(self._thread.run(share_offsets_of_topics(cluster, group_id, topics)))
        except ClientError:
            return {}

    def close(self) -> None:
        """Leave the group; the broker releases at once what is held. May be called twice."""
        if self._thread.is_closed:
            return
        try:
            self._thread.run(self._close(), _CLOSE_TIMEOUT_S)
        except Exception as error:
            _log.warning("leaving share group %s: %r", self._options.group_id, error)
        self._thread.close(_CLOSE_TIMEOUT_S)

    # The methods below run on the event loop's thread.

    async def _join(self) -> None:
        options, cluster = self._options, self._consumer.cluster
        try:
            await self._receive_outcomes()
            self._acquisitions.subscribe(await subscribed_topics(cluster, options.subscription))
            await ensure_group_settings(cluster, options.group_id, options.group_settings)
            await self._consumer.start()
        except BaseException:
            await cluster.close()
            raise
        self._background.append(asyncio.create_task(self._consumer.keep_locks()))
        if options.subscription.pattern is not None:
            self._background.append(asyncio.create_task(self._follow_pattern()))

    async def _receive_outcomes(self) -> None:
        """Listen for outcomes: on this host, unless its processes share no files."""
        if self._options.receipts_over_tcp:
            host = own_address(self._options.kafka.bootstrap_servers)
            address = await self._server.listen_at(host)
        else:
            address = await self._server.listen_on_host()
        self.receipt = str(address)

    async def _take_outcomes(self, request: Any) -> dict[str, Any]:
        return {"counts": await self._acquisitions.apply(requested(request))}

    async def _close(self) -> None:
        self._server.close()
        if self._background:
            for task in self._background:
                task.cancel()
            try:
                async with asyncio.timeout(_RELEASE_TIMEOUT_S):
                    await self._acquisitions.close()
            except (TimeoutError, ClientError) as error:
                _log.warning("releasing the records of a micro-batch: %r", error)
            await self._consumer.close(_LEAVE_TIMEOUT_MS)

    async def _follow_pattern(self) -> None:
        subscription, group_id = self._options.subscription, self._options.group_id
        while True:
            await asyncio.sleep(_MATCH_INTERVAL_S)
            try:
                topics = tuple(await subscribed_topics(self._consumer.cluster, subscription))
            except (ClientError, SourceError) as error:
                _log.warning("looking for topics of share group %s: %s", group_id, error)
                continue
            if topics != self._acquisitions.topics:
                _log.warning("share group %s: subscribed to %s", group_id, ", ".join(topics))
                self._acquisitions.subscribe(topics)


def _by_topic(progress: Mapping[TopicPartition, ShareOffset]) -> dict[str, dict[str, int]]:
    lags = {key: offset.lag for key, offset in progress.items() if offset.lag is not None}
    by_topic: dict[str, dict[str, int]] = {}
    for (topic, partition), records in lags.items():
        of_topic = by_topic.setdefault(topic, {})
        name = str(partition) if len(lags) <= _LAGS_IN_PROGRESS else "sum"
        of_topic[name] = of_topic.get(name, 0) + records
    return by_topic


def _with_advice(error: Exception) -> str:
    if is_missing_group(error):
        return f"{error}: choose another kafka.group.id, or delete that group"
    return describe(error)
