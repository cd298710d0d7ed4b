"""``headrace lag show``: print the progress and lag of groups of all types."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import replace

from headrace.amounts import count_of, duration
from headrace.cli.client_options import call_options, on_cluster
from headrace.cli.clients import Cluster, model, snapshot
from headrace.cli.errors import BadUsage, fail_with
from headrace.cli.nouns import command
from headrace.cli.options import GROUP_TYPES, TYPES, arg, repeatable, switch
from headrace.cli.output import Output, Row, output_option
from headrace.cli.tables import shortened, tell

_WARNINGS_SHOWN = 5

QUERY_OPTIONS = (
    arg("groups", "GROUP", "groups to show (default: all)", nargs="*"),
    repeatable("--topic", "TOPIC", "a topic", dest="topics"),
    arg("--groups-pattern", "REGEX", "groups whose whole id matches"),
    arg("--exclude-groups", "REGEX", "without groups whose whole id matches"),
    arg("--topics-pattern", "REGEX", "topics whose whole name matches"),
    arg("--exclude-topics", "REGEX", "without topics whose whole name matches"),
    TYPES,
    arg(
        "--isolation-level",
        choices=("read_uncommitted", "read_committed"),
        default="read_uncommitted",
        help="with read_committed the lag ends at the last stable offset (default: "
        "read_uncommitted)",
    ),
    switch(
        "--no-time-lag", "read no records: without timestamps; transaction markers count as lag"
    ),
)
"""The options that :func:`lag_query` reads."""


def lag_query(options: Namespace) -> model.LagQuery:
    """Return the query that :data:`QUERY_OPTIONS` describe.

    :raises BadUsage: they contradict each other
    """
    for name in ("groups", "topics"):
        if getattr(options, name) and getattr(options, f"{name}_pattern") is not None:
            raise BadUsage(f"name the {name} or give --{name}-pattern, not both")
    return model.LagQuery(
        groups=tuple(dict.fromkeys(options.groups)),
        groups_pattern=options.groups_pattern,
        groups_excluded=options.exclude_groups,
        group_types=options.types or GROUP_TYPES,
        topics=tuple(options.topics),
        topics_pattern=options.topics_pattern,
        topics_excluded=options.exclude_topics,
        read_committed=options.isolation_level == "read_committed",
        time_lag=not options.no_time_lag,
    )


@command(
    "print the progress and lag of all groups of a cluster, or of some",
    *QUERY_OPTIONS,
    switch("--partitions", "a row for each partition, not for each topic; so has JSON always"),
    output_option,
    call_options,
    examples="headrace lag show\n"
    "headrace lag show billing packers --partitions -o wide\n"
    "headrace lag show --groups-pattern 'team-.*' --type share\n"
    "headrace lag show -o json | jq 'map(select(.time_lag_ms > 60000))'",
)
def run(options: Namespace) -> None:
    """Execute the command.

    :raises Failure: it failed in part, or the options are wrong
    :raises ClientError: it failed
    """
    query = replace(lag_query(options), held=options.partitions)
    on_cluster(options, lambda cluster: _show(cluster, query, options))


async def _show(cluster: Cluster, query: model.LagQuery, options: Namespace) -> None:
    output = Output(options.output)
    seen = await snapshot.snapshot(cluster, query)
    by_partition = output.is_json or options.partitions
    output.rows(model.rows(seen) if by_partition else _topics(seen.groups), wide=_WIDE)
    sys.stdout.flush()
    if not output.is_json and (seen.groups or not seen.warnings):
        tell(footer(seen))
    fail_with(shortened(seen.warnings, _WARNINGS_SHOWN))


_WIDE = (
    *("cluster", "member_id", "host", "last_stable_offset", "leader_epoch"),
    *("delivery_complete_count", "delivery_count", "metadata", "snapshot_time_ms"),
)
"""The fields of partitions that a table has only with ``-o wide``."""


def footer(seen: model.Snapshot) -> str:
    """Return the sums of a snapshot."""
    lag = model.total([group.lag for group in seen.groups])
    parts = [
        count_of(len(seen.groups), "group"),
        count_of(lag.partitions, "partition"),
        count_of(sum(len(group.members) for group in seen.groups), "member"),
    ]
    if lag.partitions:
        parts.append(f"lag {'unknown' if lag.records is None else f'{lag.records:,}'}")
    if lag.seconds is not None:
        parts.append(f"time lag {duration(lag.seconds)}")
    if lag.unknown:
        parts.append(f"{count_of(lag.unknown, 'partition')} whose lag is unknown")
    return ", ".join(parts)


def _topics(groups: Sequence[model.GroupLag]) -> Iterator[Row]:
    """Yield a row for each topic of each group, and one for the members without a partition."""
    for group in groups:
        members: dict[str | None, set[str]] = {}
        for partition in group.partitions:
            ids = members.setdefault(partition.topic, set())
            ids.update(member.member_id for member in partition.members)
        if group.idle or not group.topics:
            members[None] = {member.member_id for member in group.idle}
        for topic, ids in members.items():
            lag = group.topics.get(topic or "")
            yield {
                "group_id": group.group_id,
                "group_type": group.type,
                "group_state": group.state,
                "topic": topic,
                "partition_count": lag and lag.partitions,
                "member_count": len(ids),
                "lag": lag and lag.records,
                "time_lag_ms": lag and lag.time_lag_ms,
            }
