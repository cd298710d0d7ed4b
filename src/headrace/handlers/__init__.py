"""The registry of APIs: versions and handler by API key. ApiVersions lists it.

Each API is one module, ``api_NN_name.py``, with a function ``handle(broker, request, context)``. It
takes a request in the shape of the latest version, and returns the response in that shape, or a
:class:`~headrace.coordinators.runtime.Deferred` or awaitable of it. A module is imported with the
first request of its API, so that the broker starts quickly.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Mapping
from functools import cache, partial
from importlib import import_module
from typing import Any, NamedTuple

from headrace.broker.limits import MAX_COMMIT_TEMPLATES, MAX_PRODUCE_TEMPLATES
from headrace.errors import ErrorCode
from headrace.protocol.request_templates import RequestTemplates

Handle = Callable[..., Any | Awaitable[Any]]


class Api(NamedTuple):
    """A served API and its versions.

    :ivar advertised_from: the lowest version in the response to ApiVersions, if that is not the
        lowest served one
    """

    key: int
    name: str
    lowest: int
    highest: int
    advertised_from: int | None = None

    @property
    def module(self) -> str:
        """The full name of the handler's module."""
        return f"{__name__}.api_{self.key:02}_{self.name}"

    @property
    def storage_error(self) -> ErrorCode:
        """The error code after a failed disk write.

        Coordinators return NOT_COORDINATOR, as Kafka's do: clients find the coordinator again and
        retry.
        """
        if self.key in _COORDINATOR_WRITES:
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.KAFKA_STORAGE_ERROR


_COORDINATOR_WRITES = frozenset(
    (8, 11, 12, 13, 14, 22, 24, 25, 26, 28, 42, 47, 68, 76, 83, 84, 85, 86, 88, 91, 92)
)
"""APIs that write to the internal topic of a coordinator."""


APIS: Mapping[int, Api] = {
    api.key: api
    for api in (
        # Older librdkafka compresses only if 0 is advertised (KAFKA-18659).
        Api(0, "produce", 3, 13, advertised_from=0),
        Api(1, "fetch", 4, 18),
        Api(2, "list_offsets", 1, 11),
        Api(3, "metadata", 0, 13),
        Api(8, "offset_commit", 2, 10),
        Api(9, "offset_fetch", 1, 10),
        Api(10, "find_coordinator", 0, 6),
        Api(11, "join_group", 0, 9),
        Api(12, "heartbeat", 0, 4),
        Api(13, "leave_group", 0, 5),
        Api(14, "sync_group", 0, 5),
        Api(15, "describe_groups", 0, 6),
        Api(16, "list_groups", 0, 5),
        Api(18, "api_versions", 0, 4),
        Api(19, "create_topics", 2, 7),
        Api(20, "delete_topics", 1, 6),
        Api(21, "delete_records", 0, 2),
        Api(22, "init_producer_id", 0, 5),
        Api(23, "offset_for_leader_epoch", 2, 4),
        Api(24, "add_partitions_to_txn", 0, 5),
        Api(25, "add_offsets_to_txn", 0, 4),
        Api(26, "end_txn", 0, 5),
        Api(27, "write_txn_markers", 1, 2),
        Api(28, "txn_offset_commit", 0, 5),
        Api(32, "describe_configs", 1, 4),
        Api(33, "alter_configs", 0, 2),
        Api(34, "alter_replica_log_dirs", 1, 2),
        Api(35, "describe_log_dirs", 1, 5),
        Api(37, "create_partitions", 0, 3),
        Api(42, "delete_groups", 0, 2),
        Api(43, "elect_leaders", 0, 2),
        Api(44, "incremental_alter_configs", 0, 1),
        Api(45, "alter_partition_reassignments", 0, 1),
        Api(46, "list_partition_reassignments", 0, 0),
        Api(47, "offset_delete", 0, 0),
        Api(55, "describe_quorum", 0, 2),
        Api(57, "update_features", 0, 2),
        Api(60, "describe_cluster", 0, 2),
        Api(61, "describe_producers", 0, 0),
        Api(65, "describe_transactions", 0, 0),
        Api(66, "list_transactions", 0, 2),
        Api(68, "consumer_group_heartbeat", 0, 1),
        Api(69, "consumer_group_describe", 0, 1),
        Api(71, "get_telemetry_subscriptions", 0, 0),
        Api(72, "push_telemetry", 0, 0),
        Api(74, "list_config_resources", 0, 1),
        Api(75, "describe_topic_partitions", 0, 0),
        Api(76, "share_group_heartbeat", 1, 1),
        Api(77, "share_group_describe", 1, 1),
        Api(78, "share_fetch", 1, 2),
        Api(79, "share_acknowledge", 1, 2),
        Api(83, "initialize_share_group_state", 0, 0),
        Api(84, "read_share_group_state", 0, 0),
        Api(85, "write_share_group_state", 0, 1),
        Api(86, "delete_share_group_state", 0, 0),
        Api(87, "read_share_group_state_summary", 0, 1),
        Api(88, "streams_group_heartbeat", 0, 0),
        Api(89, "streams_group_describe", 0, 0),
        Api(90, "describe_share_group_offsets", 0, 1),
        Api(91, "alter_share_group_offsets", 0, 0),
        Api(92, "delete_share_group_offsets", 0, 0),
    )
}


class Templated(NamedTuple):
    """An API whose requests are served by template.

    :ivar module: has ``make_template(broker, frame, header, request)``
    """

    module: str
    max_templates: int


TEMPLATED: Mapping[int, Templated] = {
    0: Templated("produce_templates", MAX_PRODUCE_TEMPLATES),
    8: Templated("commit_templates", MAX_COMMIT_TEMPLATES),
}


def request_templates(api_key: int, broker: Any) -> RequestTemplates:
    """Return the templates of a new connection for an API in :data:`TEMPLATED`."""
    module, max_templates = TEMPLATED[api_key]
    make_template = import_module(f"{__name__}.{module}").make_template
    return RequestTemplates(partial(make_template, broker), max_templates)


@cache
def handler(api_key: int) -> Handle:
    """Return the function that serves an API of :data:`APIS`."""
    handle: Handle = import_module(APIS[api_key].module).handle
    return handle


def handler_unless(refused: Container[int], api_key: int) -> Handle:
    """Return the function that serves an API of :data:`APIS`, or refuses it.

    :param refused: the APIs to refuse
    """
    if api_key not in refused:
        return handler(api_key)
    refuse: Handle = import_module(f"{__name__}.refused").handle
    return refuse
