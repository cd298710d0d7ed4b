"""``headrace configs``: describe and alter configs of topics, brokers, groups and so on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from headrace.patterns import meant

from .clients import Cluster, configs, errors
from .errors import BadUsage, Failure
from .nouns import Noun
from .options import DRY_RUN, YES, Declaration, arg, properties_file, repeatable, switch
from .output import Output

NOUN = Noun()
_KIND = arg(
    "kind",
    "KIND",
    "topic, broker, broker-logger, group or client-metrics",
    choices=("topic", "broker", "broker-logger", "group", "client-metrics"),
)
SETTINGS: Declaration = arg("settings", "CONFIG=VALUE", "configs to set", nargs="*")
UNSET = repeatable("--delete", "CONFIG", "a config to delete, so that its default holds")
_DEFAULT = "default"
"""The name that stands for the dynamic defaults of all brokers."""


@NOUN.cluster_verb(
    "describe",
    "describe the configs that are set",
    _KIND,
    arg(
        "name",
        "NAME",
        "name of the topic, group and so on, number of the broker, or default for all brokers"
        " (default: all that exist, or have configs)",
        nargs="?",
    ),
    switch("--all", "all configs, not only those that are set"),
    examples="headrace configs describe topic orders\nheadrace configs describe broker 1 --all",
)
async def describe_configs(
    cluster: Cluster, output: Output, *, kind: str, name: str | None, all: bool
) -> None:
    """Print configs.

    :raises Failure: some are refused
    """
    config_type = _type(kind)
    names = await _names(cluster, config_type) if name is None else [_checked(kind, name)]
    if kind == "topic" and name is not None:
        await cluster.topics(names)  # else some brokers answer with defaults
    described = await configs.describe_configs(cluster, config_type, names, synonyms=True)
    output.rows(
        [
            {
                "resource_type": kind,
                "resource_name": resource or _DEFAULT,
                "config": config.name,
                "value": config.value,
                "source": config.source,
                "sensitive": config.is_sensitive,
                "read_only": config.is_read_only,
                "synonyms": {
                    f"{synonym.source}:{synonym.name}": synonym.value for synonym in config.synonyms
                },
            }
            for resource, answer in described.items()
            if not isinstance(answer, errors.ClientError)
            for config in answer
            if all or _is_set(config, kind, resource)
        ],
        wide=("source", "sensitive", "read_only", "synonyms"),
        nothing="no configs are set",
        problems=[answer for answer in described.values() if isinstance(answer, Exception)],
    )


def _type(kind: str) -> configs.ConfigType:
    return configs.ConfigType[kind.upper().replace("-", "_")]


def _checked(kind: str, name: str) -> str:
    if not kind.startswith("broker"):
        return name
    if name == _DEFAULT:
        return ""
    if not name.isdecimal():
        raise BadUsage(f"'{name}' is not the number of a broker")
    return name


async def _names(cluster: Cluster, config_type: configs.ConfigType) -> Sequence[str]:
    if config_type is configs.ConfigType.TOPIC:
        return list(await cluster.all_topics())
    if config_type in (configs.ConfigType.BROKER, configs.ConfigType.BROKER_LOGGER):
        await cluster.metadata()
        return [str(number) for number in sorted(cluster.nodes)]
    return await configs.list_config_resources(cluster, config_type)


def _is_set(config: configs.Config, kind: str, name: str) -> bool:
    if kind == "broker" and not name:
        return config.source == "DYNAMIC_DEFAULT_BROKER_CONFIG"
    return kind == "broker-logger" or config.is_dynamic


@NOUN.cluster_verb(
    "alter",
    "set and delete configs: all of the changes are made, or none",
    _KIND,
    arg("name", "NAME", "as for describe"),
    SETTINGS,
    arg("--from-file", "FILE", "a properties file of configs to set"),
    UNSET,
    DRY_RUN,
    YES,
    examples="headrace configs alter topic orders retention.ms=86400000 --delete cleanup.policy\n"
    "headrace configs alter broker default log.retention.ms=86400000\n"
    "headrace configs alter broker-logger 1 headrace.server=DEBUG",
)
async def alter(
    cluster: Cluster,
    output: Output,
    *,
    kind: str,
    name: str,
    settings: Sequence[tuple[str, str]],
    from_file: Path | None,
    delete: Sequence[str],
) -> None:
    """Alter configs of one resource; with ``--dry-run`` the broker only checks the changes.

    :raises ClientError: the broker refuses
    """
    from_path = {} if from_file is None else properties_file(from_file)
    changes = {**from_path, **dict(settings), **dict.fromkeys(delete)}
    await alter_configs(cluster, output, kind, _checked(kind, name), changes)


async def with_hint(
    cluster: Cluster,
    refusal: errors.RequestRefused,
    config_type: configs.ConfigType,
    name: str,
    changes: Iterable[str],
) -> Failure:
    """Return the failure for a refusal to change configs; it names what was meant."""
    answers = await configs.describe_configs(cluster, config_type, [name])
    answer = answers[name]
    names = () if isinstance(answer, errors.ClientError) else [config.name for config in answer]
    hints = (meant(change, names) for change in changes if change not in names)
    return Failure("; ".join([str(refusal), *filter(None, hints)]))


async def alter_configs(
    cluster: Cluster,
    output: Output,
    kind: str,
    name: str,
    changes: Mapping[str, str | None],
) -> None:
    """Set configs of one resource, and delete those whose value is None, after a question; print
    the changes.

    :raises ClientError: the broker refuses
    :raises BadUsage: there is no change
    """
    if not changes:
        raise BadUsage("name a config to set, as NAME=VALUE, or to --delete")
    config_type = _type(kind)
    if kind == "topic":
        await cluster.topics([name])
    try:  # a refusal comes before the question
        await configs.alter_configs(cluster, config_type, name, changes, validate_only=True)
    except errors.RequestRefused as refusal:
        raise await with_hint(cluster, refusal, config_type, name, changes) from refusal

    await output.change(
        {
            config: {
                "resource_type": kind,
                "resource_name": name or _DEFAULT,
                "config": config,
                "value": value,
                "result": "deleted" if value is None else "set",
            }
            for config, value in changes.items()
        },
        lambda: configs.alter_configs(cluster, config_type, name, changes),
        "Make these changes?" if None in changes.values() else None,
    )
