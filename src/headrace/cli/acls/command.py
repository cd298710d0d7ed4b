"""``headrace acls``: add, list and remove ACLs, as Kafka's ``kafka-acls`` does."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter

from headrace.cli.client_options import call_options
from headrace.cli.errors import BadUsage
from headrace.cli.groups.options import action_options, checked, chosen_words, is_given
from headrace.cli.options import flag, repeated_option

ACTIONS = ("add", "list", "remove")
PATTERN_TYPES = ("any", "match", "literal", "prefixed")
OPERATIONS = {
    name.replace("_", ""): name
    for name in (
        "ALL",
        "READ",
        "WRITE",
        "CREATE",
        "DELETE",
        "ALTER",
        "DESCRIBE",
        "CLUSTER_ACTION",
        "DESCRIBE_CONFIGS",
        "ALTER_CONFIGS",
        "IDEMPOTENT_WRITE",
    )
}
"""Operations as ``--operation`` takes them, in upper case, and their names."""
_RESOURCES = ("topic", "group", "transactional-id", "cluster")
_PRINCIPALS = ("allow-principal", "deny-principal")
_CONVENIENCES = ("producer", "consumer")
_EPILOG = """\
examples:
  headrace acls add --allow-principal User:alice --operation read --topic orders
  headrace acls add --allow-principal User:alice --consumer --topic orders --group packers
  headrace acls add --allow-principal User:bob --topic ord --resource-pattern-type prefixed
  headrace acls list --topic orders
  headrace acls remove --topic orders --force
"""


def declare(parser: ArgumentParser) -> None:
    """Declare the command's options."""
    parser.description = "Add, list and remove ACLs."
    parser.usage = "%(prog)s add|list|remove [options]"
    parser.epilog = _EPILOG
    parser.formatter_class = RawDescriptionHelpFormatter
    action_options(parser, ACTIONS, metavar="ACTION")
    resources = parser.add_argument_group("resources")
    for name, what in (
        ("topic", "a topic"),
        ("group", "a group"),
        ("transactional-id", "a transactional id"),
    ):
        repeated_option(resources, f"--{name}", "NAME", f"{what}; * for all")
    flag(resources, "--cluster", "the cluster")
    resources.add_argument(
        "--resource-pattern-type",
        type=str.lower,
        choices=PATTERN_TYPES,
        default="literal",
        metavar="TYPE",
        help=f"{', '.join(PATTERN_TYPES)} (default: literal); any and match with list and remove",
    )
    entries = parser.add_argument_group("entries")
    for permission in ("allow", "deny"):
        repeated_option(
            entries,
            f"--{permission}-principal",
            "TYPE:NAME",
            "a principal such as User:alice; User:* for all",
        )
        repeated_option(entries, f"--{permission}-host", "ADDRESS", "an address (default: all)")
    repeated_option(
        entries,
        "--operation",
        "OPERATION",
        f"one of {', '.join(map(str.lower, OPERATIONS.values()))} (default: all)",
    )
    flag(
        entries,
        "--producer",
        "write, describe and create on the topics; on transactional ids write and describe",
    )
    flag(entries, "--consumer", "read and describe on the topics, read on the groups")
    flag(entries, "--idempotent", "with --producer: idempotent-write on the cluster")
    repeated_option(
        parser, "--principal", "TYPE:NAME", "with list: only the ACLs of this principal"
    )
    flag(parser, "--force", "with remove: do not ask")
    flag(parser, "--json", "with list: print a JSON array")
    call_options(parser)


def check(options: Namespace) -> None:
    """Check the options together, and set ``options.action`` and ``options.operations``.

    :raises BadUsage: they contradict each other
    """
    if words := chosen_words(options, ACTIONS):
        raise BadUsage(f"'{words[0]}' is not an option: see headrace acls --help")
    options.operations = [_operation(one) for one in options.operation] or ["ALL"]
    conveniences = [name for name in _CONVENIENCES if is_given(options, name)]
    if options.action != "list":
        _check_change(options, conveniences)
    elif any(is_given(options, name) for name in (*_PRINCIPALS, *_CONVENIENCES)):
        raise BadUsage("Option [list] takes --principal, not the options of entries")
    if options.principal and options.action != "list":
        raise BadUsage("The --principal option is only available if --list is set")
    if options.idempotent and not options.producer:
        raise BadUsage("The --idempotent option is only available if --producer is set")


run = checked(check, "headrace.cli.acls.actions")


def _operation(text: str) -> str:
    name = OPERATIONS.get(text.upper().replace("_", "").replace("-", ""))
    if name is None:
        raise BadUsage(f"'{text}' is not an operation: {', '.join(map(str.lower, OPERATIONS))}")
    return name


def _check_change(options: Namespace, conveniences: list[str]) -> None:
    has_principal = any(is_given(options, name) for name in _PRINCIPALS)
    if options.action == "add" and not has_principal:
        raise BadUsage(
            "You must specify one of: --allow-principal, --deny-principal when trying to add ACLs."
        )
    if options.action == "add" and options.resource_pattern_type in ("any", "match"):
        raise BadUsage(
            "A '--resource-pattern-type' value of 'ANY' or 'MATCH' is not valid when adding acls."
        )
    if not any(is_given(options, name) for name in _RESOURCES):
        raise BadUsage("You must provide at least one resource: see --help")
    if conveniences and options.operation:
        raise BadUsage(
            "Option --producer or --consumer already has operations: leave out --operation"
        )
    if conveniences and (options.deny_principal or options.deny_host):
        raise BadUsage("Option --producer or --consumer only allows: leave out --deny-principal")
    if options.producer and not options.topic:
        raise BadUsage("With --producer you must specify a --topic")
    if options.consumer and not (options.topic and options.group):
        raise BadUsage("With --consumer you must specify a --topic and a --group")
