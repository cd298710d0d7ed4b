"""The admin client of a command, and the groups of a cluster by kind."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from confluent_kafka import KafkaException

from headrace.admin import AdminClient, GroupListing
from headrace.cli.client_options import call_config, must_answer
from headrace.cli.errors import BadUsage, Failure

from .results import reason_of

GROUPS_AT_ONCE = 100
"""The number of groups in one request; it bounds memory and requests in flight."""

CONSUMER_PROTOCOLS = ("", "consumer")
"""The protocol types of consumer groups; empty for a group with committed offsets only."""


Action = Callable[[AdminClient, Namespace], None]
"""An action of a command: it prints its results, and raises ``Failure`` or ``KafkaException``."""


def run_action(actions: Mapping[str, Action], options: Namespace) -> int:
    """Execute the action of a command.

    :param options: as the command's ``check`` leaves them
    :returns: the exit status
    :raises Failure: it failed, wholly or in part
    """
    with _connected(options) as admin:
        actions[options.action](admin, options)
    return 0


@contextmanager
def _connected(options: Namespace) -> Iterator[AdminClient]:
    """Yield an admin client of the cluster that the options name.

    :raises Failure: no broker answers, or a call inside the block raised ``KafkaException``
    :raises BadUsage: the client configuration is wrong
    """
    config = call_config(options)
    must_answer(config)
    try:
        admin = AdminClient({"log_level": 0, **config})
    except (KafkaException, ValueError) as error:
        raise BadUsage(f"the client configuration is wrong: {reason_of(error)}") from error
    with admin:
        try:
            yield admin
        except KafkaException as error:
            raise Failure(reason_of(error)) from error


def timeout_s(options: Namespace) -> float:
    """Return the timeout of one call, in seconds."""
    return float(options.timeout)


def listed_groups(
    admin: AdminClient, options: Namespace, states: Sequence[str] = (), types: Sequence[str] = ()
) -> list[GroupListing]:
    """List groups by group id.

    :param states: only groups in these states; empty for all
    :param types: only groups of these types; empty for all
    :raises KafkaException: a broker refuses or does not answer
    """
    result = admin.list_all_groups(
        states=states, types=types, request_timeout=timeout_s(options)
    ).result()
    if result.errors:
        raise result.errors[0]
    return list(result.valid)


def all_consumer_groups(
    admin: AdminClient, options: Namespace, states: Sequence[str] = (), types: Sequence[str] = ()
) -> list[GroupListing]:
    """List the consumer groups of the classic and the consumer protocol, by group id.

    :raises KafkaException: a broker refuses or does not answer
    """
    of_types = [one.lower() for one in types or ("classic", "consumer")]
    listed = listed_groups(admin, options, states, of_types)
    return [group for group in listed if group.protocol in CONSUMER_PROTOCOLS]


def chosen_consumer_groups(admin: AdminClient, options: Namespace) -> list[str]:
    """Return the ids of the consumer groups of the command: those named, or all.

    :raises KafkaException: a broker refuses or does not answer
    """
    if options.all_groups:
        return [group.group_id for group in all_consumer_groups(admin, options)]
    return list(options.group)


def other_groups(admin: AdminClient, options: Namespace) -> frozenset[str]:
    """Return the ids of the groups that are not consumer groups.

    :raises KafkaException: a broker refuses or does not answer
    """
    return frozenset(
        group.group_id
        for group in listed_groups(admin, options)
        if group.protocol not in CONSUMER_PROTOCOLS
    )
