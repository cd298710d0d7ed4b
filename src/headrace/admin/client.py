"""The admin client: confluent-kafka's own, extended by the calls on groups that it lacks."""

from __future__ import annotations

import functools
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

from headrace.client import AuthenticationFailed, ClientError, Cluster
from headrace.client.quotas import alter_quotas, describe_quotas
from headrace.client.settings import (
    Settings,
    UnsupportedSetting,
    check_token,
    librdkafka_config,
    settings,
)
from headrace.security.quota_entities import Entity, entity_of

from . import groups, security
from .arguments import checked_names, checked_partitions, checked_request
from .inherited_calls import NEEDED, WAITING_CALLS, explained
from .loop_thread import LoopThread
from .results import (
    ConsumerGroupDescription,
    ListGroupsResult,
    ListShareGroupsResult,
    ShareGroupDescription,
    SharePartitionOffsetInfo,
    StreamsGroupDescription,
)
from .translation import future_exception, kafka_exception

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_MAX_REQUEST_TIMEOUT_S = 3600


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

    To read and set configs of a group, such as ``share.auto.offset.reset``, use
    ``describe_configs`` and ``incremental_alter_configs`` with
    ``ConfigResource(ResourceType.GROUP, group_id)``.

    The calls below use connections of our own, opened by the first such call. They honour
    ``bootstrap.servers`` (also as a list), ``client.id``, ``socket.timeout.ms``,
    ``socket.connection.setup.timeout.ms`` and security: TLS with PEM files, SASL with PLAIN,
    SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER. With other security settings these calls raise
    ``KafkaException``; the inherited calls work.

    Each call takes ``request_timeout``, in seconds, retries included (default:
    ``socket.timeout.ms``), and raises ``ValueError`` or ``TypeError`` for a wrong argument. The
    client may be used from several threads. End it with ``with`` or :meth:`close`.

    :param conf: librdkafka's configuration properties; names of Kafka's Java clients are translated
    """

    def __init__(self, conf: Mapping[str, Any], **kwargs: Any) -> None:
        # Metrics of an admin client have no use, and librdkafka would log the broker's request.
        config = {"enable.metrics.push": False, **librdkafka_config(conf)}
        self._unsupported: UnsupportedSetting | None = None
        self._settings: Settings | None = None
        self._loop_thread: LoopThread | None = None
        try:
            self._settings = settings(config)
            check_token(self._settings)
        except UnsupportedSetting as error:
            self._unsupported = error
        except AuthenticationFailed as error:
            raise kafka_exception(error) from None
        super().__init__(config, **kwargs)
        if self._settings is None:
            return
        self._loop_thread = LoopThread(self._settings)
        self._finalizer = weakref.finalize(self, self._loop_thread.close)

    def __exit__(self, *exception: Any) -> Any:
        self.close()
        return super().__exit__(*exception)

    def close(self) -> None:
        """Close the connections of the calls on groups; their unfinished futures fail.

        May be called again.
        """
        if self._loop_thread is not None:
            self._loop_thread.close()

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Use these credentials for connections opened from now on. See confluent-kafka."""
        super().set_sasl_credentials(username, password)
        if self._loop_thread is not None:
            self._loop_thread.change_login(username, password)

    # -- security

    def describe_acls(  # type: ignore[override]
        self, acl_binding_filter: confluent.AclBindingFilter, **kwargs: Any
    ) -> Future[list[confluent.AclBinding]]:
        """List the ACLs that match a filter. See confluent-kafka.

        :returns: a future. It fails with SECURITY_DISABLED if the brokers have no authorizer, which
            librdkafka does not tell from a cluster without ACLs
        """
        if self._settings is None:
            return super().describe_acls(acl_binding_filter, **kwargs)
        timeout_ms = self._timeout_ms(kwargs.get("request_timeout"))
        return self._future(lambda c: security.describe_acls(c, acl_binding_filter, timeout_ms))

    def describe_user_scram_credentials(  # type: ignore[override]
        self, users: list[str] | None = None, **kwargs: Any
    ) -> Future[Any] | dict[str, Future[Any]]:
        """Describe the SCRAM credentials of users. See confluent-kafka.

        :param users: the names; None or empty for all users
        :returns: a future for each name; one future for all users
        """
        if self._settings is None:
            return super().describe_user_scram_credentials(users, **kwargs)
        names = checked_names("users", users) if users else []
        timeout_ms = self._timeout_ms(kwargs.get("request_timeout"))
        if names:
            return self._futures(names, lambda c: security.describe_users(c, names, timeout_ms))
        return self._future(lambda c: security.describe_users(c, (), timeout_ms))

    def _on_refused_login(self, fail: Callable[[AuthenticationFailed], None]) -> None:
        """Ask a broker over a connection of our own; call ``fail`` if it refuses the settings."""
        if self._loop_thread is None or self._loop_thread.is_closed:
            return

        def settle(done: Future[Any]) -> None:
            error = None if done.cancelled() else done.exception()
            if isinstance(error, AuthenticationFailed):
                fail(error)

        self._loop_thread.submit(lambda cluster: cluster.metadata()).add_done_callback(settle)

    def _check_login(self, timeout_s: float | None) -> None:
        """Wait until a broker has answered over a connection of our own.

        :raises KafkaException: they do not accept the security settings
        """
        if self._loop_thread is None or self._loop_thread.is_closed:
            return
        try:
            self._loop_thread.submit(lambda cluster: cluster.metadata()).result(timeout_s)
        except AuthenticationFailed as error:
            raise kafka_exception(error) from None
        except (ClientError, TimeoutError):
            pass  # librdkafka tries for as long as the caller wants

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

            for group in admin.list_all_groups().result().valid:
                print(group.group_id, group.type, group.protocol, group.state)

        :param types: list only these types: "classic", "consumer", "share", "streams"
        :param states: list only these states: "Empty", "Stable" …
        """
        timeout_ms = self._timeout_ms(request_timeout)
        of_types = checked_names("types", types) if types else []
        in_states = checked_names("states", states) if states else []
        return self._future(lambda c: groups.list_all(c, in_states, of_types, timeout_ms))

    # -- consumer groups

    def describe_consumer_groups(  # type: ignore[override]
        self,
        group_ids: Sequence[str],
        *,
        include_authorized_operations: bool = False,
        request_timeout: float | None = None,
    ) -> dict[str, Future[ConsumerGroupDescription]]:
        """Describe consumer groups of both protocols.

        Extends confluent-kafka's call by epochs, and sends few requests for many groups.

        :returns: a future for each group. It fails with GROUP_ID_NOT_FOUND if no consumer group
            has this id
        """
        ids = checked_names("group_ids", group_ids, may_be_empty=True)
        timeout_ms = self._timeout_ms(request_timeout)
        return self._futures(
            ids,
            lambda c: groups.describe_consumer(c, ids, include_authorized_operations, timeout_ms),
        )

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
        wanted = checked_request(list_consumer_group_offsets_request, may_be_empty=True)
        timeout_ms = self._timeout_ms(request_timeout)
        return self._futures(
            wanted, lambda c: groups.list_committed_offsets(c, wanted, require_stable, timeout_ms)
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
        asked = checked_partitions(partitions)
        timeout_ms = self._timeout_ms(request_timeout)
        return self._futures(
            asked, lambda c: groups.delete_committed_offsets(c, group, asked, timeout_ms)
        )

    # -- share groups

    def list_share_groups(
        self,
        *,
        states: Collection[ConsumerGroupState] | None = None,
        request_timeout: float | None = None,
    ) -> Future[ListShareGroupsResult]:
        """List the share groups of all brokers.

        ::

            for group in admin.list_share_groups().result().valid:
                print(group.group_id, group.state.name)

        :param states: list only these states: EMPTY, STABLE, DEAD
        :raises TypeError: an element of ``states`` is no ``ConsumerGroupState``
        """
        wanted = frozenset(states or ())
        if not all(isinstance(state, ConsumerGroupState) for state in wanted):
            raise TypeError("All elements of states must be of type ConsumerGroupState")
        timeout_ms = self._timeout_ms(request_timeout)
        return self._future(lambda c: groups.list_share_groups(c, wanted, timeout_ms))

    def describe_share_groups(
        self,
        group_ids: Sequence[str],
        *,
        include_authorized_operations: bool = False,
        request_timeout: float | None = None,
    ) -> dict[str, Future[ShareGroupDescription]]:
        """Describe share groups: state, epochs, members and their assignments.

        ::

            group = admin.describe_share_groups(["packers"])["packers"].result()
            print(group.state.name, len(group.members))

        :param include_authorized_operations: ask which operations this client may perform
        :returns: a future for each group. It fails with GROUP_ID_NOT_FOUND if no share group has
            this id
        """
        ids = checked_names("group_ids", group_ids)
        timeout_ms = self._timeout_ms(request_timeout)
        return self._futures(
            ids, lambda c: groups.describe_share(c, ids, include_authorized_operations, timeout_ms)
        )

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
        wanted = checked_request(request, may_repeat=True)
        timeout_ms = self._timeout_ms(request_timeout)
        return self._futures(wanted, lambda c: groups.list_share_offsets(c, wanted, timeout_ms))

    def alter_share_group_offsets(
        self,
        group_id: str,
        partitions: Sequence[TopicPartition],
        *,
        request_timeout: float | None = None,
    ) -> dict[TopicPartition, Future[None]]:
        """Set the start offsets of a share group without members; create the group if it is
        missing.

        Records from the new start offset are delivered, again if they were delivered before;
        earlier records are skipped.

        ::

            to = [TopicPartition("orders", 0, 1200)]
            for future in admin.alter_share_group_offsets("packers", to).values():
                future.result()

        :param partitions: each with its new start offset in ``offset``
        :returns: a future for each partition. It fails with NON_EMPTY_GROUP while the group has
            members
        :raises ValueError: an offset is negative, or an argument is empty or repeated
        """
        (group,) = checked_names("group_id", [group_id])
        asked = checked_partitions(partitions)
        if any(partition.offset < 0 for partition in asked):
            raise ValueError(
                "Element of 'partitions' must not have negative value for 'offset' field"
            )
        timeout_ms = self._timeout_ms(request_timeout)
        return self._futures(
            asked, lambda c: groups.alter_share_offsets(c, group, asked, timeout_ms)
        )

    def delete_share_group_offsets(
        self, group_id: str, topics: Sequence[str], *, request_timeout: float | None = None
    ) -> dict[str, Future[None]]:
        """Delete the state of a share group without members for some topics.

        If the group subscribes to such a topic again, it starts as a new group does.

        :returns: a future for each topic. It fails with NON_EMPTY_GROUP while the group has members
        """
        (group,) = checked_names("group_id", [group_id])
        names = checked_names("topics", topics)
        timeout_ms = self._timeout_ms(request_timeout)
        return self._futures(
            names, lambda c: groups.delete_share_offsets(c, group, names, timeout_ms)
        )

    def delete_share_groups(
        self, group_ids: Sequence[str], *, request_timeout: float | None = None
    ) -> dict[str, Future[None]]:
        """Delete share groups without members, with their state.

        :returns: a future for each group. It fails with NON_EMPTY_GROUP while the group has
            members, and with GROUP_ID_NOT_FOUND if no share group has this id
        """
        ids = checked_names("group_ids", group_ids)
        timeout_ms = self._timeout_ms(request_timeout)
        return self._futures(ids, lambda c: groups.delete_share_groups(c, ids, timeout_ms))

    # -- streams groups

    def describe_streams_groups(
        self,
        group_ids: Sequence[str],
        *,
        include_authorized_operations: bool = False,
        request_timeout: float | None = None,
    ) -> dict[str, Future[StreamsGroupDescription]]:
        """Describe streams groups: state, epochs, topology, members and their tasks (KIP-1071).

        ::

            group = admin.describe_streams_groups(["word-count"])["word-count"].result()
            print(group.state_name, [member.tasks.active for member in group.members])

        :param include_authorized_operations: ask which operations this client may perform
        :returns: a future for each group. It fails with GROUP_ID_NOT_FOUND if no streams group has
            this id
        """
        ids = checked_names("group_ids", group_ids)
        timeout_ms = self._timeout_ms(request_timeout)
        return self._futures(
            ids,
            lambda c: groups.describe_streams(c, ids, include_authorized_operations, timeout_ms),
        )

    # -- client quotas

    def describe_client_quotas(
        self,
        entity: Mapping[str, str | None] | None = None,
        *,
        any_of: Collection[str] = (),
        strict: bool = False,
        request_timeout: float | None = None,
    ) -> Future[dict[Entity, dict[str, float]]]:
        """Describe the quotas of users, client ids and addresses (KIP-546).

        ::

            for entity, quotas in admin.describe_client_quotas(any_of=["user"]).result().items():
                print(dict(entity), quotas)

        :param entity: the names by type: "user", "client-id" or "ip". None as a name is the default
        :param any_of: types that an entity must have, with any name
        :param strict: without entities that have other types
        :returns: a future of the quotas by entity, a tuple of types and names
        """
        timeout = self._timeout_ms(request_timeout) / 1000
        return self._future(
            lambda c: describe_quotas(c, entity, any_of=any_of, strict=strict, timeout=timeout)
        )

    def alter_client_quotas(
        self,
        changes: Mapping[Entity, Mapping[str, float | None]],
        *,
        request_timeout: float | None = None,
    ) -> dict[Entity, Future[None]]:
        """Set quotas of users, client ids and addresses; None as a value removes one (KIP-546).

        ::

            entity = (("client-id", "loader"), ("user", None))
            admin.alter_client_quotas({entity: {"producer_byte_rate": 1048576}})[entity].result()

        :param changes: values by entity, a tuple of types and names in the order of the types
        :returns: a future for each entity. It fails with INVALID_REQUEST for an invalid entity, key
            or value
        """
        ordered = {entity_of(dict(entity)): values for entity, values in changes.items()}
        timeout = self._timeout_ms(request_timeout) / 1000
        return self._futures(ordered, lambda c: alter_quotas(c, ordered, timeout=timeout))

    # -- futures

    def _timeout_ms(self, request_timeout: float | None) -> int:
        if self._settings is None:
            raise KafkaException(
                KafkaError(KafkaError._UNSUPPORTED_FEATURE, str(self._unsupported))
            )
        if request_timeout is None:
            return self._settings.request_timeout_ms
        if not 0 <= request_timeout <= _MAX_REQUEST_TIMEOUT_S:
            raise ValueError(
                f"request_timeout must be in the range 0..{_MAX_REQUEST_TIMEOUT_S} seconds"
            )
        return int(request_timeout * 1000)

    def _future(self, work: Callable[[Cluster], Awaitable[V]]) -> Future[V]:
        """Return the future of the one result of ``work``."""

        async def keyed(cluster: Cluster) -> dict[None, V]:
            return {None: await work(cluster)}

        return self._futures([None], keyed)[None]

    def _futures(
        self,
        keys: Iterable[K],
        work: Callable[[Cluster], Awaitable[Mapping[K, V | ClientError | None]]],
    ) -> dict[K, Future[Any]]:
        """Return a future for each key, settled by the result or error of ``work`` for that key."""
        futures: dict[K, Future[Any]] = {key: Future() for key in keys}
        for future in futures.values():
            # As in confluent-kafka, a call under way cannot be cancelled.
            future.set_running_or_notify_cancel()

        def settle(done: Future[Mapping[K, V | ClientError | None]]) -> None:
            results: dict[K, V | ClientError | None] = dict.fromkeys(
                futures, ClientError("there is no answer")
            )
            try:
                results.update(done.result())
            except CancelledError:
                results = dict.fromkeys(futures, ClientError("the admin client was closed"))
            except BaseException as error:
                for future in futures.values():
                    future.set_exception(future_exception(error))
                return
            for key, future in futures.items():
                result = results[key]
                if isinstance(result, ClientError):
                    future.set_exception(future_exception(result))
                else:
                    future.set_result(result)

        assert self._loop_thread is not None
        self._loop_thread.submit(work).add_done_callback(settle)
        return futures


def _with_explanations(name: str) -> Callable[..., Any]:
    inherited = getattr(confluent.AdminClient, name)

    @functools.wraps(inherited)
    def call(self: AdminClient, *args: Any, **kwargs: Any) -> Any:
        answer = inherited(self, *args, **kwargs)
        return explained(NEEDED[name], answer, self._on_refused_login)

    return call


def _after_login(name: str) -> Callable[..., Any]:
    inherited = getattr(confluent.AdminClient, name)

    @functools.wraps(inherited)
    def call(self: AdminClient, *args: Any, **kwargs: Any) -> Any:
        timeout_s = kwargs.get("timeout")
        self._check_login(timeout_s if timeout_s is None or timeout_s >= 0 else None)
        return inherited(self, *args, **kwargs)

    return call


for _name in NEEDED:
    setattr(AdminClient, _name, _with_explanations(_name))
for _name in WAITING_CALLS:
    setattr(AdminClient, _name, _after_login(_name))
