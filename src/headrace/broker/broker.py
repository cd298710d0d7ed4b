"""The broker: one node, composed of its catalog, logs, coordinators and long polls.

Everything runs on one event loop. A handler asks a coordinator's runtime to carry out a command, or
appends to a log, and answers when that is durable.
"""

from __future__ import annotations

import asyncio
import functools
import random
import shutil
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.coordinators import startup
from headrace.coordinators.clock import Clock, steady_clock, wall_clock_ms
from headrace.coordinators.coordinators import Coordinators
from headrace.coordinators.environment import Environment
from headrace.log.data_directory import DataDirectory
from headrace.log.log_directory import LogDirectory
from headrace.log_lines import LimitedLog, get_logger
from headrace.net.access_control import AccessControl
from headrace.net.client_quotas import Quotas
from headrace.net.listener_security import ListenerSecurities
from headrace.net.listeners import Listener
from headrace.net.metrics import Metrics
from headrace.net.services import Services
from headrace.protocol.errors import StorageError
from headrace.protocol.time_slices import TimeSlices
from headrace.topics.batch_opener import BatchOpener
from headrace.topics.catalog import Catalog
from headrace.topics.features import Features
from headrace.topics.fetch_sessions import FetchSessions
from headrace.topics.internal_logs import InternalTopicLogs
from headrace.topics.long_polls import LongPolls
from headrace.topics.timestamp_searches import TimestampSearches
from headrace.topics.topic_deletions import TopicDeletions
from headrace.topics.topic_logs import TopicLogs

from .cleaner import Cleaner
from .config.broker_config import Config
from .descriptors import descriptor_budget
from .directory_watch import DirectoryWatch
from .loop_watch import LoopWatch
from .reconcile import open_catalog
from .scrubber import Scrubber

if TYPE_CHECKING:
    from headrace.net.scram_users import NewUser
    from headrace.topics.regex_matcher import RegexMatcher

    from .config.administration import ConfigAdministration


log = get_logger("headrace.broker")
limited = LimitedLog("headrace.broker")


class Broker(Services):
    """One node: topics, logs, coordinators. Use it through :class:`headrace.Broker` or ``headrace
    serve``.

    :param config: broker configuration, with Kafka's names
    :param data_dir: the directory for all state; None for a temporary one, deleted with the broker
    :param clock_ms: the wall time in epoch milliseconds; None for the system's. Waits of requests
        are timed by the event loop
    :param steady_ms: the steady time in milliseconds, see
        :class:`~headrace.coordinators.clock.Clock`; None for ``clock_ms``, or the system's
    :param users: users of SCRAM to add, unless they exist
    """

    def __init__(
        self,
        config: Config,
        data_dir: Path | None = None,
        *,
        clock_ms: Callable[[], int] | None = None,
        steady_ms: Callable[[], int] | None = None,
        users: Sequence[NewUser] = (),
    ) -> None:
        self.config: Config = config
        self.node_id = config.node_id
        self.clock = Clock(clock_ms or wall_clock_ms, steady_ms or clock_ms or steady_clock())
        self.ephemeral = data_dir is None
        self.data_dir = Path(tempfile.mkdtemp(prefix="headrace-")) if data_dir is None else data_dir
        with ExitStack() as undo:
            undo.callback(self._remove_if_ephemeral)
            directory = DataDirectory(
                self.data_dir, descriptor_budget().files, sync=not self.ephemeral
            )
            undo.callback(directory.abandon)
            self.catalog = Catalog() if self.ephemeral else open_catalog(directory)
            undo.callback(self.catalog.close)
            config.attach(self.catalog.configs)
            if users:
                from headrace.net.scram_users import add_users

                for name in add_users(self.catalog, users):
                    log.info("added the user %s", name)
            undo.pop_all()
        self.logs = LogDirectory(directory)
        has_authorizer = bool(config.get_str("authorizer.class.name"))
        self.access_control = AccessControl(config, self.catalog) if has_authorizer else None
        self.security = ListenerSecurities(config, self.catalog)
        self.quotas = Quotas(config, self.catalog, self.clock)
        self.features = Features(self.catalog, self.node_id)
        self.fetch_max_bytes = config.get_int("fetch.max.bytes")
        self.metrics = Metrics(self.catalog.topics_by_id)
        self.long_polls = LongPolls()
        self.fetch_sessions = FetchSessions(
            self.long_polls,
            config.get_int("max.incremental.fetch.session.cache.slots"),
            functools.partial(random.randrange, 1, 1 << 31),
        )
        topic_logs = self.topic_logs = TopicLogs(
            config,
            self.catalog,
            self.logs,
            self.clock,
            self.metrics.refused_produces,
            self.long_polls.notify,
        )
        self.directory_watch = DirectoryWatch(self.logs)
        self.cleaner = Cleaner(
            config, self.catalog, topic_logs, self.clock.wall_ms, self.metrics.cleaner
        )
        self.scrubber = Scrubber(directory, self.metrics.scrubber)
        self.opener = BatchOpener()
        self.timestamp_searches = TimestampSearches(self.opener)
        self.coordinators = Coordinators(
            Environment(
                self.clock,
                config,
                self.catalog,
                InternalTopicLogs(self.catalog, topic_logs, self.clock),
                topic_logs,
                self.metrics,
                self.long_polls.notify,
                self.opener,
                lambda: self.features.has_dead_letters,
            )
        )
        self.listeners = ()
        """The listeners that clients can connect to, with their ports."""
        self._is_closed = False
        self.slices = TimeSlices()
        self.staging = asyncio.Lock()
        """Held while a large batch of a client is written, one at a time."""
        self.loop_watch = LoopWatch(self.metrics.loop)
        self.topic_deletions = TopicDeletions(
            self.catalog, topic_logs, self.coordinators, self.slices
        )

    # Parts that few brokers need ------------------------------------------------------------------

    @cached_property
    def regex_matcher(self) -> RegexMatcher:
        """The regular expressions of clients."""
        from headrace.topics.regex_matcher import RegexMatcher

        return RegexMatcher(self.catalog)

    @cached_property
    def configs(self) -> ConfigAdministration:
        """What administrators ask of configs."""
        from .config.administration import ConfigAdministration

        return ConfigAdministration(self.config, self.catalog, self.topic_logs, self.security)

    # Life -----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Replay the internal topics and start the timers. Call it once, on the running event loop.

        :raises CorruptLog: when the state of coordinators cannot be read
        """
        self.topic_logs.watch_disk()
        startup.start(self.coordinators)
        for warning in self.config.warnings(self.catalog.configured("group")):
            log.warning("%s", warning)
        self.topic_deletions.resume()
        self.topic_logs.start()
        self.cleaner.start()
        self.directory_watch.start()
        self.quotas.start()

    def scrub(self) -> None:
        """Verify the stored batches in the background from now on, unless they are temporary."""
        if not self.ephemeral:
            self.scrubber.start()

    def close(self) -> None:
        """Stop the timers, flush and close the files. Acquired records are released, as locks do
        not survive a restart.
        """
        self._is_closed = True
        self.slices.close()
        self.scrubber.close()
        self.directory_watch.close()
        try:
            self.coordinators.close()
        except StorageError as error:
            log.error("cannot release acquired records: %s", error)
        self.loop_watch.close()
        self.topic_deletions.close()
        self.cleaner.close()
        self.opener.close()
        if "regex_matcher" in self.__dict__:
            self.regex_matcher.close()
        self.topic_logs.close()
        self.catalog.close()
        self._remove_if_ephemeral()

    def _remove_if_ephemeral(self) -> None:
        if self.ephemeral:
            shutil.rmtree(self.data_dir, ignore_errors=True)

    def advertise(self, listeners: Sequence[Listener]) -> None:
        """Take over the listeners that clients can connect to, and write their addresses into the
        lock file of the data directory.
        """
        self.listeners = tuple(listeners)
        addresses = (listener.advertised.partition("://")[2] for listener in listeners)
        self.logs.directory.announce(", ".join(addresses))

    def disconnected(self, connection_id: int) -> None:
        """Forget a closed connection: end its share sessions and release their records."""
        share = self.coordinators.loaded_share
        if share is None or self._is_closed:
            return
        try:
            share.disconnected(connection_id)
        except StorageError as error:
            limited.error(
                "clients",
                "cannot release the records of a lost connection: %s; their locks will time out",
                error,
            )
