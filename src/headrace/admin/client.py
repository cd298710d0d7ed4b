"""The admin client: confluent-kafka's own, and the calls on share groups that it lacks."""

from __future__ import annotations

import weakref
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka import admin as confluent

from headrace.client import ClientError, Cluster
from headrace.client.settings import Settings, UnsupportedSetting, librdkafka_config, settings

from . import share_groups
from .link import Link
from .results import ListShareGroupsResult, ShareGroupDescription, SharePartitionOffsetInfo
from .translation import kafka_exception

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_MAX_REQUEST_TIMEOUT_S = 3600


class AdminClient(confluent.AdminClient):
    """``confluent_kafka.admin.AdminClient`` with share groups (KIP-932, KIP-1226).

    It is used in the same way: calls return at once with futures, whose results come or which fail with
    ``KafkaException``. It works against headrace and against Apache Kafka 4.1 or later::

        from headrace.admin import AdminClient

        with AdminClient({"bootstrap.servers": "127.0.0.1:9092"}) as admin:
            offsets = admin.list_share_group_offsets(["packers"])["packers"].result()
            for partition, info in offsets.items():
                print(partition.topic, partition.partition, info.start_offset, info.lag)

    Configs of a group, such as ``share.auto.offset.reset``, are read and set with ``describe_configs`` and
    ``incremental_alter_configs`` and a ``ConfigResource(ResourceType.GROUP, group_id)``.

    What librdkafka lacks goes over connections of our own, which are made with the first such call. They honour
    ``bootstrap.servers`` (here also a list), ``client.id``, ``socket.timeout.ms``,
    ``socket.connection.setup.timeout.ms`` and security: TLS with PEM files, SASL with PLAIN, SCRAM-SHA-256 and
    SCRAM-SHA-512. With any other kind of security these calls raise ``KafkaException``, and the others work.

    Each call here takes ``request_timeout``, in seconds: how long it may take, retries included (default:
    ``socket.timeout.ms``). Usable from several threads. Leave it with ``with`` or :meth:`close`.

    :param conf: librdkafka's configuration properties
    """

    def __init__(self, conf: Mapping[str, Any], **kwargs: Any) -> None:
        config = librdkafka_config(conf)
        super().__init__(config, **kwargs)
        self._unsupported: UnsupportedSetting | None = None
        self._settings: Settings | None = None
        try:
            self._settings = settings(config)
        except UnsupportedSetting as error:
            self._unsupported = error
        self._link: Link | None = None
        if self._settings is not None:
            self._link = Link(self._settings)
            self._finalizer = weakref.finalize(self, self._link.close)

    def __exit__(self, *exception: Any) -> Any:
        self.close()
        return super().__exit__(*exception)

    def close(self) -> None:
        """Hang up the connections of the share-group calls, whose unfinished futures fail. May be called again."""
        if self._link is not None:
            self._link.close()

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Log in with these from the next connection on. See confluent-kafka."""
        super().set_sasl_credentials(username, password)
        if self._link is not None:
            self._link.change_login(username, password)

    def list_share_groups(
        self, *, states: Collection[ConsumerGroupState] | None = None, request_timeout: float | None = None
    ) -> Future[ListShareGroupsResult]:
        """List the share groups of all brokers.

        ::

            for group in admin.list_share_groups().result().valid:
                print(group.group_id, group.state.name)

        :param states: only groups in one of these: EMPTY, STABLE, DEAD
        :raises TypeError: an element of ``states`` is no ``ConsumerGroupState``
        """
        wanted = frozenset(states or ())
        if not all(isinstance(state, ConsumerGroupState) for state in wanted):
            raise TypeError("All elements of states must be of type ConsumerGroupState")
        timeout_ms = self._timeout_ms(request_timeout)

        async def work(cluster: Cluster) -> Mapping[None, ListShareGroupsResult | ClientError | None]:
            valid, errors = await share_groups.list_groups(cluster, wanted, timeout_ms)
            return {None: ListShareGroupsResult(valid, [_exception(error) for error in errors])}

        return self._futures([None], work)[None]

    def describe_share_groups(
        self,
        group_ids: Sequence[str],
        *,
        include_authorized_operations: bool = False,
        request_timeout: float | None = None,
    ) -> dict[str, Future[ShareGroupDescription]]:
        """Describe share groups: state, epochs, members and what they are assigned.

        ::

            group = admin.describe_share_groups(["packers"])["packers"].result()
            print(group.state.name, len(group.members))

        :param include_authorized_operations: ask what we may do with the group
        :returns: a future for each group; it fails with GROUP_ID_NOT_FOUND where there is no such share group
        """
        ids = _names("group_ids", group_ids)
        timeout_ms = self._timeout_ms(request_timeout)
        return self._futures(
            ids, lambda cluster: share_groups.describe(cluster, ids, include_authorized_operations, timeout_ms)
        )

    def list_share_group_offsets(
        self,
        request: Sequence[str | ConsumerGroupTopicPartitions],
        *,
        request_timeout: float | None = None,
    ) -> dict[str, Future[dict[TopicPartition, SharePartitionOffsetInfo]]]:
        """How far share groups are: start offset and lag of each partition.

        ::

            infos = admin.list_share_group_offsets(["packers"])["packers"].result()
            print("left to do:", sum(info.lag or 0 for info in infos.values()))

        :param request: group ids, or ``ConsumerGroupTopicPartitions(group_id, topic_partitions)`` to ask for some
            partitions only
        :returns: a future for each group. A partition that the broker cannot tell of has ``error`` set
        """
        wanted: dict[str, list[TopicPartition] | None] = {}
        for group in _sequence("request", request):
            if isinstance(group, ConsumerGroupTopicPartitions):
                wanted[group.group_id] = None
                if group.topic_partitions is not None:
                    wanted[group.group_id] = _partitions(group.topic_partitions)
            else:
                wanted[group] = None
        ids = _names("request", list(wanted))
        timeout_ms = self._timeout_ms(request_timeout)
        return self._futures(ids, lambda cluster: share_groups.list_offsets(cluster, wanted, timeout_ms))

    def alter_share_group_offsets(
        self, group_id: str, partitions: Sequence[TopicPartition], *, request_timeout: float | None = None
    ) -> dict[TopicPartition, Future[None]]:
        """Set the start offset of partitions for a share group that has no members; a new group is created.

        Records from there on are delivered (again); what comes before is skipped.

        ::

            to = [TopicPartition("orders", 0, 1200)]
            for future in admin.alter_share_group_offsets("packers", to).values():
                future.result()

        :param partitions: with the offset to start from in ``offset``
        :returns: a future for each partition; it fails with NON_EMPTY_GROUP while the group has members
        """
        (group,) = _names("group_id", [group_id])
        asked = _partitions(partitions)
        if any(partition.offset < 0 for partition in asked):
            raise ValueError("Element of 'partitions' must not have negative value for 'offset' field")
        timeout_ms = self._timeout_ms(request_timeout)
        return self._futures(asked, lambda cluster: share_groups.alter_offsets(cluster, group, asked, timeout_ms))

    def delete_share_group_offsets(
        self, group_id: str, topics: Sequence[str], *, request_timeout: float | None = None
    ) -> dict[str, Future[None]]:
        """Make a share group that has no members forget topics. If it subscribes again, it begins anew there.

        :returns: a future for each topic; it fails with NON_EMPTY_GROUP while the group has members
        """
        (group,) = _names("group_id", [group_id])
        names = _names("topics", topics)
        timeout_ms = self._timeout_ms(request_timeout)
        return self._futures(names, lambda cluster: share_groups.delete_offsets(cluster, group, names, timeout_ms))

    def delete_share_groups(
        self, group_ids: Sequence[str], *, request_timeout: float | None = None
    ) -> dict[str, Future[None]]:
        """Delete share groups that have no members, with all that they know.

        :returns: a future for each group; it fails with NON_EMPTY_GROUP while the group has members, and with
            GROUP_ID_NOT_FOUND where there is no such share group (also when there is a group of another type)
        """
        ids = _names("group_ids", group_ids)
        timeout_ms = self._timeout_ms(request_timeout)
        return self._futures(ids, lambda cluster: share_groups.delete(cluster, ids, timeout_ms))

    def _timeout_ms(self, request_timeout: float | None) -> int:
        if self._settings is None:
            raise KafkaException(KafkaError(KafkaError._UNSUPPORTED_FEATURE, str(self._unsupported)))
        if request_timeout is None:
            return self._settings.request_timeout_ms
        if not 0 <= request_timeout <= _MAX_REQUEST_TIMEOUT_S:
            raise ValueError(f"request_timeout must be in the range 0..{_MAX_REQUEST_TIMEOUT_S} seconds")
        return int(request_timeout * 1000)

    def _futures(
        self, keys: Iterable[K], work: Callable[[Cluster], Awaitable[Mapping[K, V | ClientError | None]]]
    ) -> dict[K, Future[Any]]:
        """A future for each key, settled with what ``work`` gives for it."""
        futures: dict[K, Future[Any]] = {key: Future() for key in keys}
        for future in futures.values():
            future.set_running_or_notify_cancel()  # as in confluent-kafka: what is under way cannot be cancelled

        def settle(done: Future[Mapping[K, V | ClientError | None]]) -> None:
            results: dict[K, V | ClientError | None] = dict.fromkeys(futures, ClientError("there is no answer"))
            try:
                results.update(done.result())
            except CancelledError:
                results = dict.fromkeys(futures, ClientError("the admin client was closed"))
            except BaseException as error:
                for future in futures.values():
                    future.set_exception(kafka_exception(error))
                return
            for key, future in futures.items():
                result = results[key]
                if isinstance(result, ClientError):
                    future.set_exception(kafka_exception(result))
                else:
                    future.set_result(result)

        assert self._link is not None
        self._link.submit(work).add_done_callback(settle)
        return futures


def _exception(error: ClientError) -> KafkaException:
    exception = kafka_exception(error)
    assert isinstance(exception, KafkaException)
    return exception


def _sequence(what: str, values: Iterable[V]) -> list[V]:
    if isinstance(values, str | bytes):
        raise TypeError(f"'{what}' must be a list, not a string")
    found = list(values)
    if not found:
        raise ValueError(f"'{what}' cannot be empty")
    return found


def _names(what: str, values: Iterable[str]) -> list[str]:
    names = _sequence(what, values)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"'{what}' must be made of strings")
        if not name:
            raise ValueError(f"'{what}' cannot have an empty name")
    if len(set(names)) != len(names):
        raise ValueError(f"'{what}' must not have duplicates")
    return names


def _partitions(values: Iterable[TopicPartition]) -> list[TopicPartition]:
    partitions = _sequence("partitions", values)
    for partition in partitions:
        if not isinstance(partition, TopicPartition):
            raise TypeError("Element of 'partitions' must be of type TopicPartition")
        if not partition.topic or partition.partition < 0:
            raise ValueError("Element of 'partitions' must have a topic and a partition that is not negative")
    if len(set(partitions)) != len(partitions):
        raise ValueError("'partitions' must not have duplicates")
    return partitions
