"""Configs of topics, brokers, groups and so on: DescribeConfigs and IncrementalAlterConfigs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.protocol.api import (
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
    ListConfigResourcesRequest,
)
from headrace.protocol.configs import ConfigOperation
from headrace.protocol.configs import ConfigSource as ConfigSource
from headrace.protocol.configs import ConfigType as ConfigType
from headrace.protocol.time_slices import chunks

from .cluster import Cluster
from .errors import Answers, ClientError, InvalidResponse, check_answer, raised, refused

_NAMES_AT_ONCE = 1000


@dataclass(frozen=True, slots=True)
class Synonym:
    """A config from which another one takes its value; the first of several synonyms counts."""

    name: str
    value: str | None
    source: str


@dataclass(frozen=True, slots=True)
class Config:
    """A config of a resource.

    :param value: None if it is sensitive, or has none
    :param source: a name of :class:`ConfigSource`
    """

    name: str
    value: str | None
    source: str
    is_sensitive: bool
    is_read_only: bool
    synonyms: tuple[Synonym, ...] = ()

    @property
    def is_dynamic(self) -> bool:
        """True if it was set on the resource itself, not by a file or a default."""
        return self.source.startswith("DYNAMIC_") and "DEFAULT" not in self.source


async def describe_configs(
    cluster: Cluster,
    resource_type: ConfigType,
    names: Iterable[str],
    *,
    keys: Sequence[str] | None = None,
    synonyms: bool = False,
) -> Answers[str, tuple[Config, ...]]:
    """Return the configs of resources (DescribeConfigs).

    :param names: of topics and groups; the node ids of brokers, empty for the brokers' default
    :param keys: names of configs; None for all
    :returns: resource name → configs by name, or the error
    :raises ClientError: no broker answers
    """
    described: Answers[str, tuple[Config, ...]] = {}
    by_node = defaultdict[int | None, list[str]](list)
    for name in names:
        by_node[await _node_of(cluster, resource_type, name)].append(name)
    for node_id, of_node in by_node.items():
        resources = [
            DescribeConfigsRequest.DescribeConfigsResource(resource_type, name, keys)
            for name in of_node
        ]
        request = DescribeConfigsRequest(resources, include_synonyms=synonyms)
        response = await cluster.ask(request, node_id)
        for result in response.results:
            where = _named(resource_type, result.resource_name)
            described[result.resource_name] = refused(
                f"describing configs of {where}", result, f"DESCRIBE_CONFIGS on {where}"
            ) or tuple(sorted(map(_config, result.configs), key=lambda config: config.name))
        missing = InvalidResponse("the broker's answer about configs does not mention it")
        for name in of_node:
            described.setdefault(name, missing)
    return described


async def describe_config(
    cluster: Cluster, resource_type: ConfigType, name: str, keys: Sequence[str] | None = None
) -> dict[str, str | None]:
    """Return the values of configs of one resource, or their defaults; leave out unknown configs.

    :param keys: names of configs; None for all
    :raises ClientError: the broker refuses or does not answer
    """
    described = raised(await describe_configs(cluster, resource_type, [name], keys=keys))
    return {
        config.name: config.value
        for config in described[name]
        if keys is None or config.name in keys
    }


async def config_values(
    cluster: Cluster, kind: ConfigType, names: Sequence[str], key: str
) -> dict[str, str]:
    """Return the values of one config of many resources, without those that lack it or may not be
    described.

    :raises ClientError: no broker answers
    """
    values = {}
    for some in chunks(names, _NAMES_AT_ONCE):
        described = await describe_configs(cluster, kind, some, keys=[key])
        for name in some:  # a broker may answer for others
            configs = described[name]
            for config in () if isinstance(configs, ClientError) else configs:
                if config.name == key and config.value:
                    values[name] = config.value
    return values


async def share_group_config(cluster: Cluster, group_id: str, name: str) -> str | None:
    """Return the value in effect of a config of a share group, such as
    ``share.delivery.count.limit``; None if the user may not know it.

    Before Kafka 4.4 brokers alone have some of these configs, with the prefix ``group.``.

    :raises ClientError: no broker answers
    """
    if not cluster.nodes:
        await cluster.metadata()
    node_id = str(min(cluster.nodes, default=0))
    for kind, resource, key in (
        (ConfigType.GROUP, group_id, name),
        (ConfigType.BROKER, node_id, f"group.{name}"),
    ):
        values = await config_values(cluster, kind, [resource], key)
        if values:
            return values[resource]
    return None


async def alter_configs(
    cluster: Cluster,
    resource_type: ConfigType,
    name: str,
    changes: Mapping[str, str | None],
    *,
    validate_only: bool = False,
) -> None:
    """Set or delete configs of one resource; others keep their values (IncrementalAlterConfigs).

    :param name: as in :func:`describe_configs`
    :param changes: name → value; None to delete it
    :param validate_only: have the broker check the changes without making them
    :raises ClientError: the broker refuses one of them, and then none is made; or does not answer
    """
    configs = [
        IncrementalAlterConfigsRequest.AlterableConfig(
            key, ConfigOperation.DELETE if value is None else ConfigOperation.SET, value
        )
        for key, value in changes.items()
    ]
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(resource_type, name, configs)
    request = IncrementalAlterConfigsRequest([resource], validate_only)
    response = await cluster.ask(request, await _node_of(cluster, resource_type, name))
    if len(response.responses) != 1:
        raise InvalidResponse(
            f"the broker sent {len(response.responses)} answers to one change of configs"
        )
    where = _named(resource_type, name)
    what = f"changing {', '.join(changes)} of {where}"
    check_answer(what, response.responses[0], f"ALTER_CONFIGS on {where}")


async def list_config_resources(cluster: Cluster, resource_type: ConfigType) -> list[str]:
    """Return the names of the resources of a type that have configs (KIP-1142), sorted.

    :raises ClientError: the broker refuses or does not answer
    """
    response = await cluster.ask(ListConfigResourcesRequest([resource_type]))
    kind = resource_type.name.lower().replace("_", " ")
    check_answer(f"listing {kind} configs", response, "DESCRIBE_CONFIGS on the cluster")
    return sorted(resource.resource_name for resource in response.config_resources)


async def _node_of(cluster: Cluster, resource_type: ConfigType, name: str) -> int | None:
    """Return the broker that must answer for a resource: None for any.

    Only the broker itself answers for its configs and loggers.

    :raises ClientError: there is no such broker
    """
    if resource_type not in (ConfigType.BROKER, ConfigType.BROKER_LOGGER) or not name.isdecimal():
        return None
    node_id = int(name)
    if node_id not in cluster.nodes:
        await cluster.metadata()
        if node_id not in cluster.nodes:
            nodes = ", ".join(map(str, sorted(cluster.nodes)))
            raise ClientError(f"there is no broker {node_id}: the cluster has {nodes}")
    return node_id


def _named(resource_type: ConfigType, name: str) -> str:
    return f"{resource_type.name.lower().replace('_', ' ')} '{name}'"


def _config(answer: Any) -> Config:
    return Config(
        answer.name,
        answer.value,
        _source(answer.config_source),
        answer.is_sensitive,
        answer.read_only,
        tuple(
            Synonym(synonym.name, synonym.value, _source(synonym.source))
            for synonym in answer.synonyms
        ),
    )


def _source(number: int) -> str:
    try:
        return ConfigSource(number).name
    except ValueError:
        return ConfigSource.UNKNOWN.name
