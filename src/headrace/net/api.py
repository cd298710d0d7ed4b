"""The declaration at the head of a handler: what the road to it must know.

Its rules are the permissions that the API requires, in the order in which they are checked, and
what a missing one does; ``docs/behaviour/security.md`` prints them as a table.

* :class:`Whole`: without the permission the whole request is refused, before its handler is called.
* :class:`Each`: items of an array without the permission are refused, each on its own, where the
  handler asks :meth:`headrace.net.call.Call.allowed`.
* :class:`Inside`: the handler asks for the permission, because it decides about parts of what it
  does: what it lists, names or creates.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Mapping
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.protocol.authorized_operations import Operation
from headrace.protocol.configs import ConfigType
from headrace.protocol.errors import ErrorCode, Refusal
from headrace.protocol.request_templates import MakeTemplate
from headrace.protocol.schema import Versions, schema_of, snake_case, versions_of
from headrace.protocol.time_slices import run_now
from headrace.security.acls import CLUSTER_NAME, ResourceType

from .audit import audited
from .refusals import refusing_all

if TYPE_CHECKING:
    from headrace.topics.settings import Settings

# Rules --------------------------------------------------------------------------------------------

READ, WRITE, CREATE, DELETE = Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE
ALTER, DESCRIBE, CLUSTER_ACTION = Operation.ALTER, Operation.DESCRIBE, Operation.CLUSTER_ACTION
DESCRIBE_CONFIGS, ALTER_CONFIGS = Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS
IDEMPOTENT_WRITE = Operation.IDEMPOTENT_WRITE
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
TRANSACTIONAL_ID, USER = ResourceType.TRANSACTIONAL_ID, ResourceType.USER

Need = tuple[Operation, ResourceType]
"""A permission: an operation on a resource."""
Owner = tuple[ResourceType, str] | None
"""The resource of an item of a request; None if the handler refuses the item."""

ERROR_OF = {
    kind: ErrorCode[f"{kind.name}_AUTHORIZATION_FAILED"]
    for kind in (TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID)
}
"""The error for a missing permission on a resource of a type."""
MESSAGES = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Transactional Id authorization failed.",
    ErrorCode.UNSUPPORTED_VERSION: "The version of API is not supported.",
}
"""Kafka's messages for requests that are refused. Only some responses have them."""
TOPIC_DENIED = Refusal(
    ErrorCode.TOPIC_AUTHORIZATION_FAILED, MESSAGES[ErrorCode.TOPIC_AUTHORIZATION_FAILED]
)
"""The error of a topic that the client may not use, where the response has a message."""


class Whole(NamedTuple):
    """A permission without which a request is refused.

    :ivar alternatives: one of them is enough
    :ivar names: returns the names of the resources in a request: all must be allowed
    """

    alternatives: tuple[Need, ...]
    names: Callable[[Any], Iterable[str | None]]


class Each(NamedTuple):
    """A permission for the items of an array of the request.

    :ivar operation: the operation on the resource of an item
    :ivar kind: the type of the resource; None if it depends on the item
    :ivar field: the field of an item that names its resource; empty if the item is the name.
        ``resource_type`` is understood
    :ivar unless: a permission on the cluster that is enough for all items
    :ivar once: leave items that are named twice to the handler, which refuses them
    :ivar owner: returns the resource of an item, where its type depends on the item
    :ivar ids_from: the first version whose items have topic ids instead of names; None for none
    """

    operation: Operation
    kind: ResourceType | None
    field: str = ""
    unless: Operation | None = None
    once: bool = False
    owner: Callable[[Any], Owner] | None = None
    ids_from: int | None = None

    def name_of(self, item: Any) -> Any:
        """Return the name of the resource of an item."""
        return getattr(item, self.field) if self.field else item

    def identity(self, item: Any) -> Any:
        """Return what is equal for items that name the same resource."""
        if self.field == "resource_type":
            return item.resource_type, item.resource_name
        return self.name_of(item)


class Inside(NamedTuple):
    """A permission that the handler asks for.

    :ivar effect: the effect of a missing permission, for the documentation
    """

    operation: Operation
    kind: ResourceType
    effect: str


Rule = Whole | Each | Inside


def on_cluster(*operations: Operation) -> Whole:
    """Require one of these operations on the cluster."""
    needs = tuple((operation, CLUSTER) for operation in operations)
    return Whole(needs, lambda request: (CLUSTER_NAME,))


def on(operation: Operation, resource_type: ResourceType, field: str) -> Whole:
    """Require an operation on the resources that a field of the request names."""

    def names(request: Any) -> Iterable[str | None]:
        value = getattr(request, field)
        return (value,) if isinstance(value, str) else value or ()

    return Whole(((operation, resource_type),), names)


READ_GROUP = on(READ, GROUP, "group_id")
"""What the requests of members need."""
READ_PARTITIONS = Inside(READ, TOPIC, "TOPIC_AUTHORIZATION_FAILED for its partitions")
"""What requests need that read the records or the producers of partitions."""
WRITE_TRANSACTION = on(WRITE, TRANSACTIONAL_ID, "transactional_id")
"""What the requests of transactional producers need."""

_CONFIG_TYPES = frozenset(ConfigType)


def owner_of_configs(resource: Any) -> Owner:
    """Return the owner of the configs of a resource of a request; None for an unknown type."""
    if resource.resource_type == ConfigType.TOPIC:
        return TOPIC, resource.resource_name
    if resource.resource_type == ConfigType.GROUP:
        return GROUP, resource.resource_name
    return (CLUSTER, CLUSTER_NAME) if resource.resource_type in _CONFIG_TYPES else None


def each_config(
    operation: Operation, owner: Callable[[Any], Owner] = owner_of_configs, *, once: bool = False
) -> Each:
    """Require an operation on the owner of the configs of each resource of a request: a topic, a
    group, or the cluster.
    """
    return Each(operation, None, "resource_type", once=once, owner=owner)


# APIs ---------------------------------------------------------------------------------------------

Handle = Callable[[Any, Any], Awaitable[Any]]
"""``handle(call, request)``: returns the response to a :class:`~headrace.net.call.Call`."""
Refuse = Callable[[Any, ErrorCode], Any]
"""``refuse(request, code)``: returns the response to a request that is refused as a whole."""


REBALANCE_PROTOCOLS = "group.coordinator.rebalance.protocols"
CONSUMER, STREAMS = "consumer", "streams"
"""The protocols of groups that a broker may have disabled. The classic one cannot be; share groups
are served whether they are listed or not, as in Apache Kafka.
"""


class Api:
    """A served API. Its versions are those of Kafka's definitions.

    :param key: its API key
    :param rules: the permissions that it requires, in the order in which they are checked
    :param is_quick: its requests take little time and never wait in line
    :param protocol: the protocol of groups without which the API is refused, before permissions are
        checked
    :param of_coordinator: a coordinator serves it. After a failed write that returns
        NOT_COORDINATOR, as Kafka's do: clients find the coordinator again and retry
    :param refuse: makes the response to a request that is refused as a whole; None for one with the
        error in every place that it has for errors
    :param has_one_error: the response to such a request has its error at the top, and no items
    :param has_message: it has Kafka's message for the error, too, as have items that are refused
    :param is_audited: its requests are those of administrators, see :mod:`.audit`
    :param unserved: makes the response, in version 0, to a version that is not served; None to
        close the connection
    :param template: makes a template of a request that was served (docs/decisions/0009)
    :ivar handle: the function that serves it, set by the registry
    """

    handle: Handle

    def __init__(
        self,
        key: int,
        *rules: Rule,
        is_quick: bool = False,
        protocol: str | None = None,
        of_coordinator: bool = False,
        refuse: Refuse | None = None,
        has_one_error: bool = False,
        has_message: bool = False,
        is_audited: bool = False,
        unserved: Callable[[Any], Any] | None = None,
        template: MakeTemplate | None = None,
    ) -> None:
        self.key = key
        self.rules = rules
        self.is_quick = is_quick
        self.protocol = protocol
        self.storage_error = (
            ErrorCode.NOT_COORDINATOR if of_coordinator else ErrorCode.KAFKA_STORAGE_ERROR
        )
        self.is_audited = is_audited
        self.unserved = unserved
        self.template = template
        self.request, self.response = schema_of("request", key), schema_of("response", key)
        self.lowest, self.highest = self.request.versions
        self.wholes = tuple(rule for rule in rules if isinstance(rule, Whole))
        self._refuse = refuse
        self._has_one_error, self._has_message = has_one_error, has_message

    @cached_property
    def title(self) -> str:
        """Its name as Kafka writes it: ``ShareFetch``."""
        return self.request.name.removesuffix("Request")

    @cached_property
    def name(self) -> str:
        """Its name in the log: ``share_fetch``."""
        return snake_case(self.title)

    @cached_property
    def each(self) -> Each:
        """The permission that each item of its request needs."""
        (rule,) = (rule for rule in self.rules if isinstance(rule, Each))
        return rule

    def refused(self, request: Any, code: ErrorCode) -> Any:
        """Return the response to a request that is refused as a whole."""
        return run_now(self.refusing(request, code))

    def refusing(self, request: Any, code: ErrorCode) -> Generator[None, None, Any]:
        """Do what :meth:`refused` does, in steps: yield between the items of its arrays."""
        if self._refuse is not None:
            return self._refuse(request, code)
        items = None if self._has_one_error else request
        return (yield from refusing_all(items, self.response, code, self.message_of(code)))

    def message_of(self, code: ErrorCode) -> str | None:
        """Return the message beside the error of what the client may not do."""
        return MESSAGES.get(code) if self._has_message else None


class Apis(Mapping[int, Api]):
    """All served APIs by key. A module is imported with the first request of its API, so that the
    broker starts quickly.

    :param modules: the names of their modules
    :ivar quick: the keys of the imported APIs whose requests never wait in line
    """

    def __init__(self, modules: Mapping[int, str]) -> None:
        self._modules = modules
        self._imported: dict[int, Api] = {}
        self.quick: set[int] = set()

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(self._modules))

    def __len__(self) -> int:
        return len(self._modules)

    def __getitem__(self, api_key: int) -> Api:
        try:
            return self._imported[api_key]
        except KeyError:
            module = import_module(self._modules[api_key])
        api: Api = module.API
        api.handle = audited(module.handle) if api.is_audited else module.handle
        self._imported[api_key] = api
        if api.is_quick:
            self.quick.add(api_key)
        return api


def stub(key: int, *rules: Rule, error: Refusal, protocol: str | None = None) -> tuple[Api, Handle]:
    """Return an API that refuses every request, and its handler."""
    api = Api(key, *rules, protocol=protocol)

    async def handle(call: Any, request: Any) -> Any:
        response = api.response.message_type(error_code=error.code)
        if error.message is not None:
            response.error_message = error.message
        return response

    return api, handle


def served_versions(api_key: int, config: Settings) -> Versions:
    """Return the versions of an API that a broker with this config serves.

    :raises KeyError: Kafka has no such API
    """
    versions = versions_of("request", api_key)
    # Its highest version is unstable.
    if api_key == _INIT_PRODUCER_ID and not config.get_bool("unstable.api.versions.enable"):
        return versions._replace(last=versions.last - 1)
    return versions


_INIT_PRODUCER_ID = 22
