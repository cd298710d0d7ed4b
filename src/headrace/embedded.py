"""The broker of programs and tests: one in this process, with what a test asks of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

from headrace.broker.embedded import EmbeddedBroker

if TYPE_CHECKING:
    from headrace.client import Cluster
    from headrace.client.records import Record

R = TypeVar("R")

_RECORDS_AT_ONCE = 10_000
_LOOKS_EVERY_S = 0.05


class Broker(EmbeddedBroker):
    """A broker in this process, with its own thread: ``with headrace.Broker() as broker:``. Clients
    of any kind connect to ``broker.bootstrap_servers``. Its log lines go where the program's own
    go; without configured logging it writes none, except that other machines can reach a port
    without a login.

    :param data_dir: the directory for all state, verified in the background as by ``headrace
        serve``; by default that of ``log.dirs`` in the configuration, or else a temporary directory
        that is deleted with the broker, and not verified
    :param config: broker configuration under Kafka's names, for example ``{"num.partitions":
        "4"}``; values may be of any type whose text is what Kafka expects. ``listeners`` replaces
        ``host`` and ``port``
    :param host: the address to listen on, with the listener PLAINTEXT
    :param port: 0 picks a free port
    :param metrics_port: the port to serve Prometheus metrics on, see :attr:`metrics_url`; 0 picks a
        free port, None serves none
    :param users: passwords by name, of users for SCRAM-SHA-256 and SCRAM-SHA-512 that are added
        unless they exist
    :raises headrace.ConfigError: for an unknown name, a value out of range, or, when it starts,
        keys and certificates that cannot be used. Starting also raises
        :class:`headrace.DirectoryInUse` when another broker holds the data directory,
        :class:`headrace.UnusableDirectory` when another version has written it,
        :class:`headrace.CorruptLog` when the state of groups in it cannot be read, and OSError when
        the address cannot be bound
    """

    def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic.

        :param config: configs of the topic, by Kafka's names
        :raises ClientError: there is such a topic, or the broker refuses a config
        """
        from headrace.client.topics import NewTopic, create_topic

        topic = NewTopic(name, partitions, configs=config or {})
        self._ask(lambda cluster: create_topic(cluster, topic))

    def records(self, topic: str) -> list[Record]:
        """Return all committed records that a topic has now, by partition and offset. Their
        delivery count is 0.

        :raises ClientError: there is no such topic, or a record cannot be read
        """
        return self._ask(lambda cluster: _records(cluster, topic))

    def share_group(self, group_id: str, start: str = "earliest") -> None:
        """Set where a share group begins that has not read a topic yet: before its first consumer
        comes, such as one of an application that is tested.

        :param start: ``earliest``, ``latest`` or ``by_duration:PT1H``, as of Kafka's
            ``share.auto.offset.reset``
        :raises ClientError: the broker refuses it
        """
        from headrace.client.configs import ConfigType, alter_configs

        changes = {"share.auto.offset.reset": start}
        self._ask(lambda cluster: alter_configs(cluster, ConfigType.GROUP, group_id, changes))

    def lag(self, group_id: str) -> int | None:
        """Return how many records a group of any type has still to finish; None if that is not
        known, as of a group that does not exist.
        """
        return self._ask(lambda cluster: _lag(cluster, group_id))

    def wait_until_drained(self, group_id: str, timeout: float = 60) -> None:
        """Wait until a group has finished all records of its topics.

        :param timeout: seconds
        :raises TimeoutError: it has not in this time
        """

        async def drained(cluster: Cluster) -> None:
            deadline_s = time.monotonic() + timeout
            while (lag := await _lag(cluster, group_id)) != 0:
                if time.monotonic() > deadline_s:
                    records = "unknown" if lag is None else lag
                    message = f"the lag of group '{group_id}' is {records} after {timeout:g} s"
                    raise TimeoutError(message)
                await asyncio.sleep(_LOOKS_EVERY_S)

        self._ask(drained)

    def _ask(self, ask: Callable[[Cluster], Awaitable[R]]) -> R:
        """Return what a function of the client returns. It runs in a thread of its own: the caller
        may be in an event loop.
        """
        from concurrent.futures import ThreadPoolExecutor

        from headrace.client.config import read_config

        config = read_config(self.client_config())

        async def answer() -> R:
            async with config.cluster() as cluster:
                return await ask(cluster)

        with ThreadPoolExecutor(1, "headrace-broker-client") as thread:
            return thread.submit(asyncio.run, answer()).result()


async def _lag(cluster: Cluster, group_id: str) -> int | None:
    from headrace.client.lag.model import LagQuery
    from headrace.client.lag.snapshot import snapshot

    groups = (await snapshot(cluster, LagQuery(groups=(group_id,)))).groups
    return None if not groups or groups[0].lag.unknown else groups[0].lag.records


async def _records(cluster: Cluster, topic: str) -> list[Record]:
    from headrace.client.offsets import READ_COMMITTED, log_bounds
    from headrace.client.partition_reader import PartitionReader

    leaders = (await cluster.topics([topic]))[topic].leaders
    bounds = await log_bounds(cluster, [(topic, number) for number in leaders], READ_COMMITTED)
    starts = {partition: bound[0] for partition, bound in bounds.items()}
    ends = {partition: bound[1] for partition, bound in bounds.items()}
    reader = PartitionReader(cluster, starts, ends, READ_COMMITTED)
    records: list[Record] = []
    while (read := await reader.read(_RECORDS_AT_ONCE, 1)) is not None:
        records += read
    return sorted(records, key=lambda record: (record.partition, record.offset))
