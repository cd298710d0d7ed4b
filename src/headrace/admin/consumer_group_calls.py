"""The admin client's calls on consumer groups (KIP-88, KIP-496, KIP-848), and the list of all
groups.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

from headrace.client import ClientError, Cluster

from . import consumer_groups, requests
from .arguments import checked_list, checked_names, checked_partitions
from .calls import Calls, exception_of
from .results import ConsumerGroupDescription, ListGroupsResult


class ConsumerGroupCalls(Calls):
    """The calls on consumer groups."""

    def list_all_groups(
        self,
        *,
        types: Collection[str] = (),
        states: Collection[str] = (),
        request_timeout: float | None = None,
    ) -> Future[ListGroupsResult]:
        """List the groups of all brokers, whatever their type.

        ::

            for group in admin.list_all_groups().result().valid:
                print(group.group_id, group.type, group.protocol, group.state)

        :param types: only groups of one of these: "classic", "consumer", "share", "streams"
        :param states: only groups in one of these: "Empty", "Stable" …
        """
        timeout_ms = self._timeout_ms(request_timeout)
        of_types = checked_names("types", types) if types else []
        in_states = checked_names("states", states) if states else []

        async def work(cluster: Cluster) -> Mapping[None, ListGroupsResult | ClientError | None]:
            valid, errors = await requests.list_groups(cluster, in_states, of_types, timeout_ms)
            return {None: ListGroupsResult(valid, [exception_of(error) for error in errors])}

        return self._futures([None], work)[None]

    def describe_consumer_groups(  # type: ignore[override]
        self,
        group_ids: Sequence[str],
        *,
        include_authorized_operations: bool = False,
        request_timeout: float | None = None,
    ) -> dict[str, Future[ConsumerGroupDescription]]:
        """Describe consumer groups of both protocols: confluent-kafka's call, with epochs, and few
        requests for many.

        :returns: a future for each group; it fails with GROUP_ID_NOT_FOUND where there is no such
            consumer group
        """
        ids = checked_names("group_ids", group_ids, may_be_empty=True)
        timeout_ms = self._timeout_ms(request_timeout)
        return self._futures(
            ids,
            lambda cluster: consumer_groups.describe(
                cluster, ids, include_authorized_operations, timeout_ms
            ),
        )

    def list_consumer_group_offsets(  # type: ignore[override]
        self,
        list_consumer_group_offsets_request: Sequence[str | ConsumerGroupTopicPartitions],
        *,
        require_stable: bool = False,
        request_timeout: float | None = None,
    ) -> dict[str, Future[ConsumerGroupTopicPartitions]]:
        """What consumer groups have committed, without being a member (KIP-88).

        confluent-kafka's call, which takes one group at a time. This takes any number, and sends
        one request to each coordinator::

            committed = admin.list_consumer_group_offsets(["billing"])["billing"].result()
            for partition in committed.topic_partitions:
                print(partition.topic, partition.partition, partition.offset,
                partition.leader_epoch)

        :param list_consumer_group_offsets_request: group ids, for all that a group has committed,
            or ``ConsumerGroupTopicPartitions(group_id, topic_partitions)`` to ask for some
            partitions; those without a committed offset then have the offset -1
        :param require_stable: while a transaction is about to commit offsets, wait for its end
        :returns: a future for each group. A group that does not exist has committed nothing. Where
            a transaction does not end in time, it fails with UNSTABLE_OFFSET_COMMIT
        """
        wanted: dict[str, list[TopicPartition] | None] = {}
        ids = []
        for group in checked_list("request", list_consumer_group_offsets_request):
            if isinstance(group, ConsumerGroupTopicPartitions):
                ids.append(group.group_id)
                wanted[group.group_id] = None
                if group.topic_partitions is not None:
                    wanted[group.group_id] = checked_partitions(group.topic_partitions)
            else:
                ids.append(group)
                wanted[group] = None
        checked_names("request", ids, may_be_empty=True)
        timeout_ms = self._timeout_ms(request_timeout)
        return self._futures(
            ids,
            lambda cluster: consumer_groups.list_offsets(
                cluster, wanted, require_stable, timeout_ms
            ),
        )

    def delete_consumer_group_offsets(
        self,
        group_id: str,
        partitions: Sequence[TopicPartition],
        *,
        request_timeout: float | None = None,
    ) -> dict[TopicPartition, Future[None]]:
        """Make a consumer group forget what it has committed for partitions of topics that it does
        not read (KIP-496).

        ::

            old = [TopicPartition("orders-2019", 0)]
            for future in admin.delete_consumer_group_offsets("billing", old).values():
                future.result()

        :returns: a future for each partition; it fails with GROUP_SUBSCRIBED_TO_TOPIC while a
            member of the group subscribes to the topic, with GROUP_ID_NOT_FOUND where there is no
            such group, with NON_EMPTY_GROUP where it has members that are no consumers, and with
            UNKNOWN_TOPIC_OR_PART. Deleting what was never committed succeeds
        """
        (group,) = checked_names("group_id", [group_id], may_be_empty=True)
        asked = checked_partitions(partitions)
        timeout_ms = self._timeout_ms(request_timeout)
        return self._futures(
            asked, lambda cluster: consumer_groups.delete_offsets(cluster, group, asked, timeout_ms)
        )
