"""The admin client's calls on share groups (KIP-932, KIP-1226)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future

from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, TopicPartition

from headrace.client import ClientError, Cluster

from . import share_groups
from .arguments import checked_list, checked_names, checked_partitions
from .calls import Calls, exception_of
from .results import ListShareGroupsResult, ShareGroupDescription, SharePartitionOffsetInfo


class ShareGroupCalls(Calls):
    """The calls on share groups."""

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

        :param states: only groups in one of these: EMPTY, STABLE, DEAD
        :raises TypeError: an element of ``states`` is no ``ConsumerGroupState``
        """
        wanted = frozenset(states or ())
        if not all(isinstance(state, ConsumerGroupState) for state in wanted):
            raise TypeError("All elements of states must be of type ConsumerGroupState")
        timeout_ms = self._timeout_ms(request_timeout)

        async def work(
            cluster: Cluster,
        ) -> Mapping[None, ListShareGroupsResult | ClientError | None]:
            valid, errors = await share_groups.list_groups(cluster, wanted, timeout_ms)
            return {None: ListShareGroupsResult(valid, [exception_of(error) for error in errors])}

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
        :returns: a future for each group; it fails with GROUP_ID_NOT_FOUND where there is no such
            share group
        """
        ids = checked_names("group_ids", group_ids)
        timeout_ms = self._timeout_ms(request_timeout)
        return self._futures(
            ids,
            lambda cluster: share_groups.describe(
                cluster, ids, include_authorized_operations, timeout_ms
            ),
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

        :param request: group ids, or ``ConsumerGroupTopicPartitions(group_id, topic_partitions)``
            to ask for some partitions only
        :returns: a future for each group. A partition that the broker cannot tell of has ``error``
            set
        """
        wanted: dict[str, list[TopicPartition] | None] = {}
        for group in checked_list("request", request):
            if isinstance(group, ConsumerGroupTopicPartitions):
                wanted[group.group_id] = None
                if group.topic_partitions is not None:
                    wanted[group.group_id] = checked_partitions(group.topic_partitions)
            else:
                wanted[group] = None
        ids = checked_names("request", list(wanted))
        timeout_ms = self._timeout_ms(request_timeout)
        return self._futures(
            ids, lambda cluster: share_groups.list_offsets(cluster, wanted, timeout_ms)
        )

    def alter_share_group_offsets(
        self,
        group_id: str,
        partitions: Sequence[TopicPartition],
        *,
        request_timeout: float | None = None,
    ) -> dict[TopicPartition, Future[None]]:
        """Set the start offset of partitions for a share group that has no members; a new group is
        created.

        Records from there on are delivered (again); what comes before is skipped.

        ::

            to = [TopicPartition("orders", 0, 1200)]
            for future in admin.alter_share_group_offsets("packers", to).values():
                future.result()

        :param partitions: with the offset to start from in ``offset``
        :returns: a future for each partition; it fails with NON_EMPTY_GROUP while the group has
            members
        """
        (group,) = checked_names("group_id", [group_id])
        asked = checked_partitions(partitions)
        if any(partition.offset < 0 for partition in asked):
            raise ValueError(
                "Element of 'partitions' must not have negative value for 'offset' field"
            )
        timeout_ms = self._timeout_ms(request_timeout)
        return self._futures(
            asked, lambda cluster: share_groups.alter_offsets(cluster, group, asked, timeout_ms)
        )

    def delete_share_group_offsets(
        self, group_id: str, topics: Sequence[str], *, request_timeout: float | None = None
    ) -> dict[str, Future[None]]:
        """Make a share group that has no members forget topics. If it subscribes again, it begins
        anew there.

        :returns: a future for each topic; it fails with NON_EMPTY_GROUP while the group has members
        """
        (group,) = checked_names("group_id", [group_id])
        names = checked_names("topics", topics)
        timeout_ms = self._timeout_ms(request_timeout)
        return self._futures(
            names, lambda cluster: share_groups.delete_offsets(cluster, group, names, timeout_ms)
        )

    def delete_share_groups(
        self, group_ids: Sequence[str], *, request_timeout: float | None = None
    ) -> dict[str, Future[None]]:
        """Delete share groups that have no members, with all that they know.

        :returns: a future for each group; it fails with NON_EMPTY_GROUP while the group has
            members, and with GROUP_ID_NOT_FOUND where there is no such share group (also when there
            is a group of another type)
        """
        ids = checked_names("group_ids", group_ids)
        timeout_ms = self._timeout_ms(request_timeout)
        return self._futures(ids, lambda cluster: share_groups.delete(cluster, ids, timeout_ms))
