"""Deletion of topics: catalog, logs, offsets and share state.

The transaction of the catalog decides. From then on the catalog lists the topics as deleted, until
their directories and the coordinators' state are gone: the next start continues what a crash or a
stop has interrupted.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from uuid import UUID

from headrace.coordinators.coordinators import Coordinators
from headrace.log_lines import get_logger
from headrace.protocol.errors import StorageError
from headrace.protocol.time_slices import TimeSlices

from .catalog import MAX_TOPICS_PER_TRANSACTION, Catalog, Topic
from .topic_logs import TopicLogs

log = get_logger("headrace.broker")


@dataclass(eq=False)
class TopicDeletions:
    """The deletions of topics of one broker. Belongs to the broker's event loop."""

    _catalog: Catalog
    _logs: TopicLogs
    _coordinators: Coordinators
    _slices: TimeSlices
    _loop: asyncio.AbstractEventLoop | None = None
    _resumed: asyncio.Task[None] | None = None

    def delete(self, topics: Sequence[Topic]) -> Generator[None, None, None]:
        """Delete topics, which must exist, in one transaction; yield between pieces of work.

        :raises CatalogError: when the database fails; then nothing has changed
        :raises StorageError: when offsets or share state cannot be deleted now
        """
        deletion = self._begin(topics)
        self._logs.delete_topics(topics, deletion.directories_removed)
        yield
        yield from self._coordinators.topics_deleted(topics)
        deletion.finish_part()

    def resume(self) -> None:
        """Continue after a restart what was interrupted, in slices."""
        self._loop = asyncio.get_running_loop()
        topics = list(self._catalog.deleted_topics.values())
        deletion = self._begin(topics)
        self._logs.resume_deletion(topics, deletion.directories_removed)
        if topics:
            log.info("continuing the deletion of %d topics", len(topics))
            self._resumed = self._loop.create_task(self._resume(topics, deletion))

    def _begin(self, topics: Sequence[Topic]) -> _Deletion:
        return _Deletion(self._catalog, [topic.topic_id for topic in topics], self._loop)

    async def _resume(self, topics: Sequence[Topic], deletion: _Deletion) -> None:
        try:
            await self._slices.run(self._coordinators.topics_deleted(topics))
        except StorageError as error:
            log.error(
                "cannot delete the state of deleted topics: %s; the next start tries again", error
            )
        else:
            deletion.finish_part()

    def close(self) -> None:
        """Stop; the next start continues."""
        if self._resumed is not None:
            self._resumed.cancel()


@dataclass(eq=False)
class _Deletion:
    """Topics that are being deleted, in two parts: their directories, and the coordinators' state.
    When both are gone, the catalog forgets the topics.

    :ivar _loop: the broker's loop; None before the broker has started: the start finishes
    """

    _catalog: Catalog
    _topic_ids: list[UUID]
    _loop: asyncio.AbstractEventLoop | None
    _parts_left: int = 2

    def directories_removed(self) -> None:
        """Finish the part of the directories. Called in their thread."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # it is closed: the next start finds nothing
                self._loop.call_soon_threadsafe(self.finish_part)

    def finish_part(self) -> None:
        """Finish one of the parts."""
        self._parts_left -= 1
        if not self._parts_left:
            self._forget()

    def _forget(self) -> None:
        """Have the catalog forget some of the topics, and the others in later turns of the loop."""
        topic_ids = self._topic_ids[:MAX_TOPICS_PER_TRANSACTION]
        if not topic_ids:
            return
        try:
            self._catalog.forget_deleted_topics(topic_ids)
        except StorageError as error:
            log.warning("%s; the next start tries again", error)
            return
        del self._topic_ids[: len(topic_ids)]
        if self._loop is None:
            self._forget()
        else:
            self._loop.call_soon(self._forget)
