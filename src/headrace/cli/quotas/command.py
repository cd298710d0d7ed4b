"""``headrace quotas``: list, set and remove the quotas of users, client ids and addresses."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter

from headrace.cli.errors import BadUsage
from headrace.cli.groups.options import checked, chosen_words, common_options
from headrace.cli.options import flag
from headrace.security.quota_entities import CLIENT_ID, IP, USER, check_entity, entity_of

ACTIONS = ("list", "set", "remove")
_TYPES = {"user": USER, "client_id": CLIENT_ID, "ip": IP}
_EPILOG = """\
examples:
  headrace quotas list
  headrace quotas list --user alice --json
  headrace quotas set producer_byte_rate=1048576 consumer_byte_rate=2097152 --user alice
  headrace quotas set request_percentage=50 --client-id-default
  headrace quotas set controller_mutation_rate=10 --user alice --client-id loader
  headrace quotas set connection_creation_rate=20 --ip 10.0.0.7
  headrace quotas remove producer_byte_rate --user alice

Bytes and connections are per second. 100 of request_percentage are the whole broker.
"""


def declare(parser: ArgumentParser) -> None:
    """Declare the command's options."""
    parser.description = "List, set and remove quotas of users, client ids and addresses."
    parser.usage = "%(prog)s ACTION [KEY=VALUE … | KEY …] [options]"
    parser.epilog = _EPILOG
    parser.formatter_class = RawDescriptionHelpFormatter
    common_options(parser, ACTIONS, metavar="ACTION KEY")
    entities = parser.add_argument_group("entities")
    for option, what in (("user", "a user"), ("client-id", "a client id"), ("ip", "an address")):
        metavar = "ADDRESS" if option == "ip" else "NAME"
        entities.add_argument(f"--{option}", metavar=metavar, help=what)
        flag(
            entities,
            f"--{option}-default",
            f"each {what.partition(' ')[2]} without a quota of its own",
        )


def check(options: Namespace) -> None:
    """Check the options together, and set ``options.action``, ``options.names`` (by type of entity)
    and ``options.changes``.

    :raises BadUsage: they contradict each other
    """
    words = chosen_words(options, ACTIONS)
    options.names = _names(options)
    if options.action == "list":
        if words:
            raise BadUsage("list takes an entity, such as --user alice, and no keys")
        options.changes = {}
        return
    if not words:
        raise BadUsage(f"{options.action} needs a key, such as producer_byte_rate")
    refusal = check_entity(entity_of(options.names))
    if not options.names or refusal is not None:
        raise BadUsage(
            "name a user, a client id, both, or an ip: --user alice, --client-id-default"
        )
    changes = [_change(word, options.action) for word in words]
    options.changes = dict(changes)
    if len(options.changes) < len(changes):
        raise BadUsage("give each key once")


run = checked(check, "headrace.cli.quotas.actions")


def _names(options: Namespace) -> dict[str, str | None]:
    names: dict[str, str | None] = {}
    for option, kind in _TYPES.items():
        name, is_default = getattr(options, option), getattr(options, f"{option}_default")
        if name is not None and is_default:
            raise BadUsage(f"give --{option.replace('_', '-')} or its default, not both")
        if name == "":
            raise BadUsage("a name is empty")
        if name is not None or is_default:
            names[kind] = name
    return names


def _change(word: str, action: str) -> tuple[str, float | None]:
    key, equals, text = word.partition("=")
    if action == "remove":
        if equals:
            raise BadUsage("remove takes keys without values")
        return key, None
    try:
        return key, float(text)
    except ValueError as error:
        raise BadUsage(f"set takes KEY=NUMBER, not '{word}'") from error
