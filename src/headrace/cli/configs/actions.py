"""The actions of ``headrace configs``."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from headrace.cli.cluster_run import on_cluster
from headrace.cli.tables import as_json, one_line
from headrace.client import Cluster
from headrace.client.configs import (
    Config,
    ConfigType,
    alter_configs,
    describe_configs,
    list_config_resources,
)
from headrace.client.errors import raised
from headrace.errors import ErrorCode

_TYPES = {
    "topics": ConfigType.TOPIC,
    "brokers": ConfigType.BROKER,
    "broker-loggers": ConfigType.BROKER_LOGGER,
    "groups": ConfigType.GROUP,
    "client-metrics": ConfigType.CLIENT_METRICS,
}


def execute(options: Namespace) -> int:
    """Execute the action of ``options``, as :func:`.command.check` leaves them.

    :returns: the exit status
    :raises Failure: no broker answers, or it refuses
    """
    action = _describe if options.action == "describe" else _alter
    on_cluster(options, lambda cluster: action(cluster, options))
    return 0


async def _names(cluster: Cluster, options: Namespace, kind: ConfigType) -> Sequence[str]:
    """Return the names of the resources: the one in the options, or all of the type."""
    if options.name is not None:
        if kind is ConfigType.TOPIC:
            await cluster.topics([options.name])  # else some brokers answer with defaults
        return [options.name]
    if kind is ConfigType.TOPIC:
        topics = await cluster.metadata(None)
        return sorted(name for name, one in topics.items() if not isinstance(one, ErrorCode))
    await cluster.metadata()
    if kind in (ConfigType.BROKER, ConfigType.BROKER_LOGGER):
        return [str(number) for number in sorted(cluster.nodes)]
    return await list_config_resources(cluster, kind)


async def _describe(cluster: Cluster, options: Namespace) -> None:
    kind = _TYPES[options.type]
    rows: list[dict[str, Any]] = []
    for name in await _names(cluster, options, kind):
        found = raised(await describe_configs(cluster, kind, [name], synonyms=True))[name]
        shown = found if options.all else [one for one in found if _is_set(one, kind, name)]
        if options.json:
            rows += (_row(options.type, name, one) for one in shown)
        else:
            _print(options, name, shown)
    if options.json:
        print(as_json(rows))


def _is_set(config: Config, kind: ConfigType, name: str) -> bool:
    if kind is ConfigType.BROKER_LOGGER:
        return True
    if kind is ConfigType.BROKER and not name:
        return config.source == "DYNAMIC_DEFAULT_BROKER_CONFIG"
    return config.is_dynamic


def _print(options: Namespace, name: str, configs: Sequence[Config]) -> None:
    which = "All" if options.all else "Dynamic"
    if name:
        print(f"{which} configs for {_resource(options, name)} are:")
    else:
        print(f"Default configs for {options.type} in the cluster are:")
    for one in configs:
        synonyms = ", ".join(
            f"{each.source}:{each.name}={_value(each.value)}" for each in one.synonyms
        )
        text = (
            f"{one.name}={_value(one.value)} sensitive={str(one.is_sensitive).lower()} "
            f"synonyms={{{synonyms}}}"
        )
        print(f"  {one_line(text)}")


def _value(value: str | None) -> str:
    return "null" if value is None else value


def _row(kind: str, name: str, config: Config) -> dict[str, Any]:
    return {
        "entity_type": kind,
        "entity_name": name,
        "name": config.name,
        "value": config.value,
        "source": config.source,
        "sensitive": config.is_sensitive,
        "read_only": config.is_read_only,
        "synonyms": [
            {"name": one.name, "value": one.value, "source": one.source} for one in config.synonyms
        ],
    }


async def _alter(cluster: Cluster, options: Namespace) -> None:
    kind, name = _TYPES[options.type], options.name
    if kind is ConfigType.TOPIC:
        await cluster.topics([name])
    await alter_configs(cluster, kind, name, options.changes, validate_only=options.dry_run)
    if options.json:
        print(
            as_json(
                {"name": key, "value": value, "applied": not options.dry_run}
                for key, value in options.changes.items()
            )
        )
        return
    resource = _resource(options, name) if name else "default brokers in the cluster"
    if options.dry_run:
        print(f"The configs of {resource} can be updated.")
    else:
        print(f"Completed updating config for {resource}.")


def _resource(options: Namespace, name: str) -> str:
    kind = options.type if options.type == "client-metrics" else options.type.removesuffix("s")
    return f"{kind} {one_line(name)}"
