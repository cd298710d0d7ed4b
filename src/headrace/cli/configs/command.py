"""``headrace configs``: describe and alter configs, as Kafka's ``kafka-configs`` does."""

from __future__ import annotations

import re
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter

from headrace.cli.client_options import call_options
from headrace.cli.errors import BadUsage
from headrace.cli.groups.options import action_options, checked, chosen_words
from headrace.cli.options import file_option, flag, properties_file

ACTIONS = ("describe", "alter")
TYPES = ("topics", "brokers", "broker-loggers", "groups", "client-metrics")
_SHORT = {
    "topic": "topics",
    "broker": "brokers",
    "broker-logger": "broker-loggers",
    "group": "groups",
    "client-metrics": "client-metrics",
}
_ELSEWHERE = {
    "users": "passwords are changed by headrace users, quotas by headrace quotas",
    "clients": "quotas are changed by headrace quotas",
    "ips": "quotas are changed by headrace quotas",
}
_EPILOG = r"""
examples:
  headrace configs describe --topic orders
  headrace configs describe --broker 1 --all
  headrace configs alter --topic orders \
      --add-config retention.ms=86400000,cleanup.policy=[compact,delete]
  headrace configs alter --group packers --delete-config share.record.lock.duration.ms
  headrace configs alter --broker-logger 1 --add-config headrace.server=DEBUG

The options of Kafka's own tool work too: --describe --entity-type topics --entity-name orders.
"""


def declare(parser: ArgumentParser) -> None:
    """Declare the command's options."""
    parser.description = "Describe and alter configs of topics, brokers, groups and so on."
    parser.usage = "%(prog)s describe|alter [options]"
    parser.epilog = _EPILOG.lstrip()
    parser.formatter_class = RawDescriptionHelpFormatter
    action_options(parser, ACTIONS, metavar="ACTION")
    parser.add_argument(
        "--entity-type", metavar="TYPE", help=f"type of the resource: {', '.join(TYPES)}"
    )
    parser.add_argument("--entity-name", metavar="NAME", help="name of the resource")
    parser.add_argument(
        "--entity-default",
        "--broker-defaults",
        action="store_true",
        help="the dynamic defaults of all brokers",
    )
    for name, kind in _SHORT.items():
        help_text = f"short for --entity-type {kind} --entity-name NAME"
        parser.add_argument(f"--{name}", metavar="NAME", help=help_text)
    flag(parser, "--all", "describe all configs, not only those that are set")
    parser.add_argument(
        "--add-config",
        metavar="NAME=VALUE,…",
        help="configs to set; a value with commas in brackets: [a,b]",
    )
    file_option(parser, "--add-config-file", "a properties file of configs to set")
    parser.add_argument("--delete-config", metavar="NAME,…", help="configs to delete")
    flag(parser, "--dry-run", "have the broker check the changes, and change nothing")
    flag(parser, "--json", "print a JSON array of objects")
    call_options(parser)


def check(options: Namespace) -> None:
    """Check the options together, and set ``options.action``, ``type``, ``name`` and ``changes``.

    ``name`` is None for all resources of the type, and empty for the defaults of brokers.

    :raises BadUsage: they contradict each other
    """
    words = chosen_words(options, ACTIONS)
    if words:
        raise BadUsage(f"'{words[0]}' is not an option: see --help")
    options.type, options.name = _resource(options)
    options.changes = _changes(options)
    if options.action == "describe":
        if options.changes or options.dry_run:
            raise BadUsage("describe changes nothing: leave out --add-config and the like")
        return
    if options.all:
        raise BadUsage("alter takes --add-config, --add-config-file or --delete-config, not --all")
    if options.name is None:
        raise BadUsage("alter takes the name of one resource: see --entity-name")
    if not options.changes:
        raise BadUsage("alter takes --add-config, --add-config-file or --delete-config")


run = checked(check, "headrace.cli.configs.actions")


def _resource(options: Namespace) -> tuple[str, str | None]:
    named = [
        (kind, str(value))
        for short, kind in _SHORT.items()
        if (value := getattr(options, short.replace("-", "_"))) is not None
    ]
    given = [options.entity_type is not None, bool(named)]
    if options.entity_default and not any(given):
        return "brokers", ""
    if given.count(True) != 1 or len(named) > 1:
        raise BadUsage("name one resource, as with --topic NAME or --entity-type TYPE")
    kind, name = named[0] if named else (options.entity_type, options.entity_name)
    if kind in _ELSEWHERE:
        raise BadUsage(f"{kind} are not supported here: {_ELSEWHERE[kind]}")
    if kind not in TYPES:
        raise BadUsage(f"'{kind}' is not a type of resources: {', '.join(TYPES)}")
    if options.entity_default:
        if kind != "brokers" or name is not None:
            raise BadUsage("--entity-default is for --entity-type brokers, without a name")
        return kind, ""
    if (
        kind in ("brokers", "broker-loggers")
        and name is not None
        and not re.fullmatch("[0-9]{1,10}", name)
    ):
        raise BadUsage(f"'{name}' is not the number of a broker")
    return kind, name


def _changes(options: Namespace) -> dict[str, str | None]:
    """Return the changes: name → value, None for a deletion."""
    changes: dict[str, str | None] = {}
    if options.add_config_file is not None:
        changes.update(properties_file(options.add_config_file))
    changes.update(added_configs(options.add_config or ""))
    for name in filter(None, (options.delete_config or "").split(",")):
        if changes.get(name.strip()) is not None:
            raise BadUsage(f"{name.strip()} is both set and deleted")
        changes[name.strip()] = None
    return changes


def added_configs(text: str) -> dict[str, str]:
    """Parse ``a=1,b=[x,y]`` as Kafka's tool does.

    :raises BadUsage: it has another form
    """
    found: dict[str, str] = {}
    for part in re.split(r",(?=[^\[\]]*(?:\[|$))", text) if text else ():
        name, separator, value = part.partition("=")
        if not separator or not name.strip():
            raise BadUsage(f"--add-config takes NAME=VALUE, not '{part}'")
        value = value.strip()
        bracketed = value.startswith("[") and value.endswith("]")
        found[name.strip()] = value[1:-1] if bracketed else value
    return found
