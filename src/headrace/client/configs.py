"""Configs of topics, brokers, groups and so on: DescribeConfigs and IncrementalAlterConfigs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeVar

from .connection import Connection
from .errors import InvalidResponse, RequestRefused, check_answer, refused

T = TypeVar("T")

_SET, _DELETE = 0, 1


class ConfigType(IntEnum):
    """The types of resources with configs, by Kafka's numbers."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(IntEnum):
    """The places from which a config may have its value, by Kafka's numbers."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


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
    connection: Connection,
    resource_type: ConfigType,
    names: Sequence[str],
    *,
    keys: Sequence[str] | None = None,
    synonyms: bool = False,
    timeout_ms: int,
) -> dict[str, list[Config]]:
    """Return the configs of resources; the parameters are :func:`try_describe_configs`'s.

    :returns: resource name → configs by name
    :raises RequestRefused: the broker refuses one of them
    """
    described: dict[str, list[Config]] = {}
    answers = await try_describe_configs(
        connection, resource_type, names, keys=keys, synonyms=synonyms, timeout_ms=timeout_ms
    )
    for name, answer in answers.items():
        if isinstance(answer, RequestRefused):
            raise answer
        described[name] = answer
    return described


async def try_describe_configs(
    connection: Connection,
    resource_type: ConfigType,
    names: Sequence[str],
    *,
    keys: Sequence[str] | None = None,
    synonyms: bool = False,
    timeout_ms: int,
) -> dict[str, list[Config] | RequestRefused]:
    """Return the configs of each resource, or its refusal.

    :param connection: to any broker; for the configs of a broker or its loggers, to that one
    :param keys: names of configs; None for all
    :returns: resource name → configs by name, or the refusal
    """
    messages = connection.messages("describe_configs")
    request = messages.DescribeConfigsRequest(
        resources=tuple(
            messages.DescribeConfigsResource(
                resource_type=int(resource_type),
                resource_name=name,
                configuration_keys=None if keys is None else tuple(keys),
            )
            for name in names
        ),
        include_synonyms=synonyms,
    )
    response = await connection.request(request, timeout_ms=timeout_ms)
    answers: dict[str, list[Config] | RequestRefused] = {}
    for answer in response.results:
        name = str(answer.resource_name)
        where = _named(resource_type, name)
        refusal = refused(f"describing configs of {where}", answer, f"DESCRIBE_CONFIGS on {where}")
        configs = map(_config, answer.configs)
        answers[name] = refusal or sorted(configs, key=lambda config: config.name)
    return answers


async def alter_configs(
    connection: Connection,
    resource_type: ConfigType,
    name: str,
    changes: Mapping[str, str | None],
    *,
    validate_only: bool = False,
    timeout_ms: int,
) -> None:
    """Set or delete configs of one resource; others keep their values.

    :param connection: to any broker; for the configs of a broker or its loggers, to that one
    :param changes: name → value; None to delete it
    :param validate_only: have the broker check the changes without making them
    :raises RequestRefused: the broker refuses one of them; then none is made
    """
    messages = connection.messages("incremental_alter_configs")
    resource = messages.AlterConfigsResource(
        resource_type=int(resource_type),
        resource_name=name,
        configs=tuple(
            messages.AlterableConfig(
                name=key, config_operation=_DELETE if value is None else _SET, value=value
            )
            for key, value in changes.items()
        ),
    )
    request = messages.IncrementalAlterConfigsRequest(
        resources=(resource,), validate_only=validate_only
    )
    answer = only((await connection.request(request, timeout_ms=timeout_ms)).responses)
    where = _named(resource_type, name)
    what = f"changing {', '.join(changes)} of {where}"
    check_answer(what, answer, f"ALTER_CONFIGS on {where}")


def only(answers: Sequence[T]) -> T:
    """Return the one answer of a response to one question.

    :raises InvalidResponse: there is none, or more than one
    """
    if len(answers) != 1:
        raise InvalidResponse(f"the broker sent {len(answers)} answers to one question")
    return answers[0]


def _named(resource_type: ConfigType, name: str) -> str:
    return f"{resource_type.name.lower().replace('_', ' ')} '{name}'"


def _config(answer: Any) -> Config:
    return Config(
        str(answer.name),
        None if answer.value is None else str(answer.value),
        _source(answer.config_source),
        bool(answer.is_sensitive),
        bool(answer.read_only),
        tuple(
            Synonym(
                str(one.name), None if one.value is None else str(one.value), _source(one.source)
            )
            for one in answer.synonyms
        ),
    )


def _source(number: int) -> str:
    try:
        return ConfigSource(number).name
    except ValueError:
        return ConfigSource.UNKNOWN.name
