"""The admin client: confluent-kafka's own, extended by the calls that it lacks."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Collection, Coroutine, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import replace
from typing import Any, TypeVar

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka import admin as confluent

from headrace.client import groups, offsets
from headrace.client.cluster import Cluster
from headrace.client.config import check_token, librdkafka_config, read_config
from headrace.client.configs import ConfigType, alter_configs
from headrace.client.errors import AuthenticationFailed, ClientError, InvalidResponse
from headrace.client.groups import GroupDescription
from headrace.client.loop_thread import LoopThread
from headrace.client.security import describe_users
from headrace.protocol import partitions

from . import results
from .results import ListGroupsResult, SharePartitionOffsetInfo, kafka_exception

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_LOGIN_TIMEOUT_S = 10.0
_MAX_REQUEST_TIMEOUT_S = 3600

Answers = Coroutine[Any, Any, Mapping[Any, Any]]


def _after_login(inherited: Callable[..., V]) -> Callable[..., V]:
    """Return a call of confluent-kafka that raises ``KafkaException`` at once if the brokers do not
    accept the security settings: librdkafka would try until its timeout.
    """

    @functools.wraps(inherited)
    def call(self: AdminClient, *args: Any, **kwargs: Any) -> V:
        self._check_login(kwargs.get("timeout", kwargs.get("request_timeout")))
        return inherited(self, *args, **kwargs)

    return call


class AdminClient(confluent.AdminClient):
    """``confluent_kafka.admin.AdminClient`` with share groups (KIP-932, KIP-1226) and complete
    calls on consumer groups (KIP-88, KIP-496, KIP-848).

    It is used in the same way: a call returns futures at once; they fail with ``KafkaException``.
    It works against headrace and against Apache Kafka 4.1 or later::

        from headrace.admin import AdminClient

        with AdminClient({"bootstrap.servers": "127.0.0.1:9092"}) as admin:
            offsets = admin.list_share_group_offsets(["packers"])["packers"].result()
            for partition, info in offsets.items():
                print(partition.topic, partition.partition, info.start_offset, info.lag)

    The calls below use connections of our own, opened by the first call. They honour
    ``bootstrap.servers`` (also as a list), ``client.id``, ``socket.timeout.ms``,
    ``socket.connection.setup.timeout.ms`` and security: TLS with PEM files, SASL with PLAIN,
    SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER.

    Each call takes ``request_timeout``, in seconds, retries included (default:
    ``socket.timeout.ms``), and raises ``ValueError`` or ``TypeError`` for a wrong argument. The
    client may be used from several threads. End it with ``with`` or :meth:`close`.

    :param conf: librdkafka's configuration properties
    :raises KafkaException: security settings are wrong or not supported
    """

    def __init__(self, conf: Mapping[str, Any], **kwargs: Any) -> None:
        try:
            config = read_config(conf)
            check_token(config)
            # Metrics of an admin client have no use, and librdkafka would log the broker's request.
            librdkafka = {"enable.metrics.push": False, **librdkafka_config(conf)}
        except ClientError as error:
            raise kafka_exception(error) from None
        super().__init__(librdkafka, **kwargs)
        self._cluster = config.cluster()
        self._is_login_checked = False
        self._thread = LoopThread("headrace-admin")
        self._finalizer = weakref.finalize(self, _close, self._thread, self._cluster)

    def __exit__(self, *exception: Any) -> Any:
        self.close()
        return super().__exit__(*exception)

    def close(self) -> None:
        """Close the connections of the calls below; their unfinished futures fail.

        May be called again.
        """
        _close(self._thread, self._cluster)

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Use these credentials for connections opened from now on. See confluent-kafka."""
        super().set_sasl_credentials(username, password)
        security = self._cluster.security
        if security.sasl is not None:
            sasl = replace(security.sasl, username=username, password=password)
            self._cluster.security = replace(security, sasl=sasl)
        self._is_login_checked = False

    def _check_login(self, timeout: float | None) -> None:
        """Connect once before the first inherited call.

        :param timeout: of the call, in seconds; None for a default, negative for none
        :raises KafkaException: the brokers do not accept the security settings
        """
        if self._is_login_checked or self._thread.is_closed:
            return
        if timeout is None or timeout < 0:
            timeout = _LOGIN_TIMEOUT_S
        try:
            self._thread.run(self._cluster.metadata(), min(timeout, _LOGIN_TIMEOUT_S))
        except AuthenticationFailed as error:
            raise kafka_exception(error) from None
        except (ClientError, TimeoutError):
            pass  # librdkafka tries for as long as the caller wants
        self._is_login_checked = True

    # -- groups of all types

    def list_all_groups(
        self,
        *,
        types: Collection[str] = (),
        states: Collection[str] = (),
        request_timeout: float | None = None,
    ) -> Future[ListGroupsResult]:
        """List the groups of all types, from all brokers.

        ::

            for group in admin.list_all_groups(types=["share"]).result().valid:
                print(group.group_id, group.type, group.protocol_type, group.state)

        :param types: list only these types: "classic", "consumer", "share", "streams"
        :param states: list only these states: "Empty", "Stable" …
        """
        listing = groups.list_groups(
            self._within(request_timeout),
            types=checked_names("types", types) if types else (),
            states=checked_names("states", states) if states else (),
        )
        return self._future(listing, results.group_list)

    def describe_groups(
        self,
        group_ids: Sequence[str],
        *,
        types: Sequence[str] = groups.TYPES,
        include_authorized_operations: bool = False,
        request_timeout: float | None = None,
    ) -> dict[str, Future[GroupDescription]]:
        """Describe groups of all types: state, epochs, members and their assignments.

        Sends few requests for many groups. confluent-kafka's own ``describe_consumer_groups`` knows
        consumer groups only, without epochs::

            group = admin.describe_groups(["packers"])["packers"].result()
            print(group.type, group.state, [member.assignment for member in group.members])

        :param types: the types that the groups may have: "classic", "consumer", "share", "streams"
        :param include_authorized_operations: ask which operations this client may perform
        :returns: a future for each group. It fails with GROUP_ID_NOT_FOUND if no group of these
            types has this id
        """
        ids = checked_names("group_ids", group_ids, may_be_empty=True)
        described = groups.describe_groups(
            self._within(request_timeout),
            ids,
            checked_names("types", types),
            authorized_operations=include_authorized_operations,
        )
        return self._futures(ids, described)

    def set_group_config(
        self,
        group_id: str,
        configs: Mapping[str, str | None],
        *,
        request_timeout: float | None = None,
    ) -> Future[None]:
        """Set configs of a group of any type; others keep their values.

        ::

            admin.set_group_config("packers", {"share.auto.offset.reset": "earliest"}).result()

        :param configs: name → value; None for the default
        """
        (group,) = checked_names("group_id", [group_id])
        return self._future(
            alter_configs(self._within(request_timeout), ConfigType.GROUP, group, configs)
        )

    # -- consumer groups

    def list_consumer_group_offsets(  # type: ignore[override]
        self,
        list_consumer_group_offsets_request: Sequence[str | ConsumerGroupTopicPartitions],
        *,
        require_stable: bool = False,
        request_timeout: float | None = None,
    ) -> dict[str, Future[ConsumerGroupTopicPartitions]]:
        """List the committed offsets of consumer groups (KIP-88).

        confluent-kafka's call takes one group at a time. This one takes any number, and sends one
        request to each coordinator::

            committed = admin.list_consumer_group_offsets(["billing"])["billing"].result()
            for partition in committed.topic_partitions:
                print(partition.topic, partition.partition, partition.offset,
                partition.leader_epoch)

        :param list_consumer_group_offsets_request: group ids, for all committed offsets of a
            group; or ``ConsumerGroupTopicPartitions(group_id, topic_partitions)`` for some
            partitions, which have the offset -1 if none is committed
        :param require_stable: while a transaction has pending offsets, wait for its end
        :returns: a future for each group. A missing group has no committed offsets. The future
            fails with UNSTABLE_OFFSET_COMMIT if a transaction does not end in time
        """
        groups = checked_groups(list_consumer_group_offsets_request, may_be_empty=True)
        committed = offsets.committed_offsets(
            self._within(request_timeout),
            groups,
            require_stable=require_stable,
        )
        return self._futures(
            groups,
            committed,
            lambda group_id, offsets_of_group: results.committed(
                group_id, offsets_of_group, groups[group_id]
            ),
        )

    def delete_consumer_group_offsets(
        self,
        group_id: str,
        partitions: Sequence[TopicPartition],
        *,
        request_timeout: float | None = None,
    ) -> dict[TopicPartition, Future[None]]:
        """Delete the committed offsets of a consumer group for some partitions (KIP-496).

        ::

            old = [TopicPartition("orders-2019", 0)]
            for future in admin.delete_consumer_group_offsets("billing", old).values():
                future.result()

        :returns: a future for each partition. It fails with GROUP_SUBSCRIBED_TO_TOPIC while a
            member subscribes to the topic, GROUP_ID_NOT_FOUND if the group is missing,
            NON_EMPTY_GROUP if it has members of another protocol, and UNKNOWN_TOPIC_OR_PART. It
            succeeds if no offset was committed
        """
        (group,) = checked_names("group_id", [group_id], may_be_empty=True)
        keys = checked_partitions(partitions)
        deleted = offsets.delete_offsets(self._within(request_timeout), group, keys)
        return _by_partition(self._futures(keys, deleted))

    # -- share groups

    def list_share_group_offsets(
        self,
        request: Sequence[str | ConsumerGroupTopicPartitions],
        *,
        request_timeout: float | None = None,
    ) -> dict[str, Future[dict[TopicPartition, SharePartitionOffsetInfo]]]:
        """List the start offset and lag of each partition of share groups.

        ::

            infos = admin.list_share_group_offsets(["packers"])["packers"].result()
            print("lag:", sum(info.lag or 0 for info in infos.values()))

        :param request: group ids, or ``ConsumerGroupTopicPartitions(group_id, topic_partitions)``
            for some partitions
        :returns: a future for each group. ``error`` is set for a partition that the broker refuses
        """
        groups = checked_groups(request)
        progress = offsets.share_offsets(self._within(request_timeout), groups)
        return self._futures(groups, progress, results.share_offsets)

    def alter_share_group_offsets(
        self,
        group_id: str | Sequence[ConsumerGroupTopicPartitions],
        partitions: Sequence[TopicPartition] | None = None,
        *,
        request_timeout: float | None = None,
    ) -> dict[Any, Future[Any]]:
        """Set the start offsets of a share group without members; create the group if it is
        missing.

        Records from the new start offset are delivered, again if they were delivered before;
        earlier records are skipped.

        ::

            to = [TopicPartition("orders", 0, 1200)]
            for future in admin.alter_share_group_offsets("packers", to).values():
                future.result()

        :param group_id: also, without ``partitions``, ``[ConsumerGroupTopicPartitions(group_id,
            partitions)]``, as for confluent-kafka's ``alter_consumer_group_offsets``
        :param partitions: each with its new start offset in ``offset``
        :returns: a future for each partition. It fails with NON_EMPTY_GROUP while the group has
            members. In the other form a future for each group, which fails with the first error
        :raises ValueError: an offset is negative, or an argument is empty or repeated
        """
        cluster = self._within(request_timeout)
        if partitions is not None:
            (group,) = checked_names("group_id", [group_id])  # type: ignore[list-item]
            targets = checked_partitions(partitions, have_offsets=True)
            altered = offsets.alter_share_offsets(cluster, group, targets)
            return _by_partition(self._futures(targets, altered))
        requests = checked_list("request", group_id, ConsumerGroupTopicPartitions)
        checked_names("request", [request.group_id for request in requests])
        targets_of = {
            request: checked_partitions(request.topic_partitions or (), have_offsets=True)
            for request in requests
        }
        return {
            request.group_id: self._future(
                offsets.alter_share_offsets(cluster, request.group_id, targets),
                functools.partial(_unless_refused, request),
            )
            for request, targets in targets_of.items()
        }

    def delete_share_group_offsets(
        self, group_id: str, topics: Sequence[str], *, request_timeout: float | None = None
    ) -> dict[str, Future[None]]:
        """Delete the state of a share group without members for some topics.

        If the group subscribes to such a topic again, it starts as a new group does.

        :returns: a future for each topic. It fails with NON_EMPTY_GROUP while the group has members
        """
        (group,) = checked_names("group_id", [group_id])
        names = checked_names("topics", topics)
        return self._futures(
            names, offsets.delete_share_offsets(self._within(request_timeout), group, names)
        )

    def delete_share_groups(
        self, group_ids: Sequence[str], *, request_timeout: float | None = None
    ) -> dict[str, Future[None]]:
        """Delete share groups without members, with their state.

        :returns: a future for each group. It fails with NON_EMPTY_GROUP while the group has
            members, and with GROUP_ID_NOT_FOUND if no share group has this id
        """
        ids = checked_names("group_ids", group_ids)
        return self._futures(
            ids, groups.delete_groups(self._within(request_timeout), ids, (groups.SHARE,))
        )

    # -- security

    def describe_user_scram_credentials(  # type: ignore[override]
        self, users: list[str] | None = None, **kwargs: Any
    ) -> Future[Any] | dict[str, Future[Any]]:
        """Describe the SCRAM credentials of users. See confluent-kafka, whose call corrupts memory
        when the broker refuses (librdkafka 2.16).

        :param users: the names; None or empty for all users
        :returns: a future for each name; one future for all users
        """
        names = checked_names("users", users) if users else []
        described = describe_users(self._within(kwargs.get("request_timeout")), names)
        if names:
            return self._futures(names, described, results.scram_user)
        return self._future(
            described,
            lambda credentials: {
                user: results.scram_user(user, credentials[user]) for user in credentials
            },
        )

    # -- futures

    def _within(self, request_timeout: float | None) -> Cluster:
        """:raises ValueError: it is not a sensible number of seconds"""
        if request_timeout is not None and not 0 <= request_timeout <= _MAX_REQUEST_TIMEOUT_S:
            raise ValueError(
                f"request_timeout must be in the range 0..{_MAX_REQUEST_TIMEOUT_S} seconds"
            )
        return self._cluster.within(request_timeout)

    def _future(
        self, work: Coroutine[Any, Any, Any], convert: Callable[[Any], Any] = lambda answer: answer
    ) -> Future[Any]:
        """Return the future of one result.

        :param convert: see :meth:`_futures`
        """
        future = _running()
        self._thread.submit(work).add_done_callback(
            lambda done: _settle(future, lambda: convert(done.result()))
        )
        return future

    def _futures(
        self,
        keys: Iterable[K],
        work: Answers,
        convert: Callable[[K, Any], Any] = lambda _, answer: answer,
    ) -> dict[K, Future[Any]]:
        """Return a future for each key, settled by the answer or error of ``work`` for that key.

        :param convert: makes the result of a key of the client's answer, or returns an error
        """
        futures = {key: _running() for key in keys}

        def result_of(done: Future[Mapping[Any, Any]], key: K) -> Any:
            answer = done.result().get(key, InvalidResponse("there is no answer"))
            return answer if isinstance(answer, ClientError) else convert(key, answer)

        def settle(done: Future[Mapping[Any, Any]]) -> None:
            for key, future in futures.items():
                _settle(future, functools.partial(result_of, done, key))

        self._thread.submit(work).add_done_callback(settle)
        return futures


_CALLS = """
    alter_configs alter_consumer_group_offsets alter_user_scram_credentials cluster_id create_acls
    create_partitions create_topics delete_acls delete_consumer_groups delete_records delete_topics
    describe_acls describe_cluster describe_configs describe_consumer_groups describe_topics
    elect_leaders incremental_alter_configs list_consumer_groups list_groups list_offsets
    list_topics
"""
"""confluent-kafka's calls that need a connection."""
for _name in _CALLS.split():
    setattr(AdminClient, _name, _after_login(getattr(confluent.AdminClient, _name)))


def _running() -> Future[Any]:
    """Return a future that cannot be cancelled, as in confluent-kafka."""
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()
    return future


def _settle(future: Future[Any], result_of: Callable[[], Any]) -> None:
    try:
        result = result_of()
    except ClientError as error:
        result = error
    except CancelledError:
        result = ClientError("the admin client was closed")
    except (OverflowError, ValueError) as error:  # confluent-kafka's classes refuse some values
        result = InvalidResponse(f"the broker's answer cannot be read: {error}")
    except BaseException as error:
        future.set_exception(error)
        return
    if isinstance(result, ClientError):
        future.set_exception(kafka_exception(result))
    else:
        future.set_result(result)


def _by_partition(futures: Mapping[Any, Future[V]]) -> dict[TopicPartition, Future[V]]:
    return {TopicPartition(*partition): future for partition, future in futures.items()}


def _unless_refused(
    request: ConsumerGroupTopicPartitions, outcomes: Mapping[Any, ClientError | None]
) -> ConsumerGroupTopicPartitions | ClientError:
    return next(filter(None, outcomes.values()), request)


def _close(thread: LoopThread, cluster: Cluster) -> None:
    thread.close(last=cluster.close())


# Arguments ----------------------------------------------------------------------------------------

Groups = Mapping[str, list[partitions.TopicPartition] | None]
"""Group id → partitions to ask about; None for all that have an offset."""


def checked_list(name: str, values: Iterable[Any], kind: type[V]) -> list[V]:
    """Return distinct values of one type as a list.

    :param name: the name of the argument, for error texts
    :raises TypeError: it is a string, or an element has another type
    :raises ValueError: it has no elements, or duplicates
    """
    if isinstance(values, str | bytes):
        raise TypeError(f"'{name}' must be a list, not a string")
    elements = list(values)
    if not elements:
        raise ValueError(f"'{name}' cannot be empty")
    if not all(isinstance(element, kind) for element in elements):
        raise TypeError(f"Element of '{name}' must be of type {kind.__name__}")
    if len(set(elements)) != len(elements):
        raise ValueError(f"'{name}' must not have duplicates")
    return elements


def checked_names(name: str, values: Iterable[str], *, may_be_empty: bool = False) -> list[str]:
    """Return a list of distinct strings.

    :param may_be_empty: allow ``""``, which is a valid group id in Kafka
    :raises TypeError: see :func:`checked_list`
    :raises ValueError: likewise, or one is empty
    """
    names = checked_list(name, values, str)
    if "" in names and not may_be_empty:
        raise ValueError(f"'{name}' cannot have an empty name")
    return names


def checked_partitions(
    values: Iterable[TopicPartition], *, have_offsets: bool = False
) -> dict[partitions.TopicPartition, int]:
    """Return the offset of each of distinct partitions, which have a topic and a number.

    :param have_offsets: their offsets must not be negative
    :raises TypeError: see :func:`checked_list`
    :raises ValueError: likewise, or an element lacks its topic or number
    """
    offsets: dict[partitions.TopicPartition, int] = {}
    for partition in checked_list("partitions", values, TopicPartition):
        if not partition.topic or partition.partition < 0:
            raise ValueError(
                "Element of 'partitions' must have a topic and a partition that is not negative"
            )
        offsets[str(partition.topic), int(partition.partition)] = int(partition.offset)
    if have_offsets and min(offsets.values()) < 0:
        raise ValueError("Element of 'partitions' must not have negative value for 'offset' field")
    return offsets


def checked_groups(
    request: Iterable[str | ConsumerGroupTopicPartitions], *, may_be_empty: bool = False
) -> Groups:
    """Return the groups, and the partitions of each, that a call for offsets asks about.

    :param request: group ids, or groups with partitions
    :param may_be_empty: allow the group id ``""``
    :raises TypeError: see :func:`checked_names` and :func:`checked_partitions`
    :raises ValueError: likewise
    """
    if isinstance(request, str | bytes):
        raise TypeError("'request' must be a list, not a string")
    groups = [
        group
        if isinstance(group, ConsumerGroupTopicPartitions)
        else ConsumerGroupTopicPartitions(group)
        for group in request
    ]
    checked_names("request", [group.group_id for group in groups], may_be_empty=may_be_empty)
    return {
        group.group_id: None
        if group.topic_partitions is None
        else list(checked_partitions(group.topic_partitions))
        for group in groups
    }
