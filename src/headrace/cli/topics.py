"""``headrace topics``: list, describe, create, alter and delete topics."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial

from headrace.patterns import matches
from headrace.protocol.errors import ErrorCode
from headrace.protocol.uuid_text import uuid_text

from .clients import Cluster, TopicMetadata, configs, errors, topics
from .configs import with_hint
from .nouns import Noun
from .options import (
    DRY_RUN,
    MAX_PARTITION,
    YES,
    Declaration,
    arg,
    number_up_to,
    pattern,
    repeatable,
    switch,
)
from .output import Output, Row
from .progress import in_steps
from .tables import tell

NOUN = Noun()
_TOPICS_AT_ONCE = 500
"""The number of topics in one request."""
_NOTHING = "there are no such topics, or the user may not describe them"
_NAME = r"[A-Za-z0-9._-]{1,249}"
_MAX_REPLICAS = (1 << 15) - 1


def _patterns(nargs: str) -> Declaration:
    help_text = "a topic, or a regular expression of whole names" + " (default: all)" * (
        nargs == "*"
    )
    return arg("patterns", "TOPIC", help_text, nargs=nargs, type=pattern)


async def _matching(
    cluster: Cluster, patterns: Sequence[str], *, may_miss: bool = False
) -> dict[str, TopicMetadata]:
    """Return the topics that have one of the names, or match one of the patterns, by name.

    :param patterns: a topic with this very name comes before those that match it; empty for all
    :raises UnknownTopic: a pattern matches none, unless ``may_miss``
    :raises RequestRefused: likewise, and the user may not describe the topic of this name
    """
    existing = await cluster.all_topics()
    if not patterns:
        return existing
    chosen = {}
    for text in patterns:
        names = [text] if text in existing else [name for name in existing if matches(text, name)]
        if not names and not may_miss:
            if re.fullmatch(_NAME, text):
                await cluster.topics([text])  # names the permission, if one is missing
            raise errors.UnknownTopic(text)
        chosen.update({name: existing[name] for name in names})
    return chosen


@NOUN.cluster_verb(
    "list",
    "list topics",
    _patterns("*"),
    examples="headrace topics list\nheadrace topics list 'team-.*' -o wide",
)
async def list_topics(cluster: Cluster, output: Output, *, patterns: Sequence[str]) -> None:
    """Print the names of topics, with their numbers of partitions."""
    rows = [
        {
            "topic": topic.name,
            "partition_count": len(topic.leaders),
            "is_internal": topic.is_internal,
            "topic_id": uuid_text(topic.topic_id),
        }
        for topic in (await _matching(cluster, patterns, may_miss=True)).values()
    ]
    output.rows(rows, wide=("is_internal", "topic_id"), nothing=_NOTHING)


@NOUN.cluster_verb(
    "describe",
    "describe topics, with the configs that are set, or their partitions",
    _patterns("*"),
    switch("--partitions", "a row for each partition: its leader and replicas"),
    examples="headrace topics describe 'orders.*'\n"
    "headrace topics describe orders --partitions -o wide",
)
async def describe_topics(
    cluster: Cluster,
    output: Output,
    *,
    patterns: Sequence[str],
    partitions: bool,
) -> None:
    """Print topics or their partitions.

    :raises Failure: some are refused
    """
    names = list(await _matching(cluster, patterns))
    answers = await in_steps(
        names,
        _TOPICS_AT_ONCE,
        "describing topics",
        partial(topics.describe_topics, cluster),
    )
    described, refusals = [], []
    for answer in answers.values():
        if isinstance(answer, topics.TopicDescription):
            described.append(answer)
        elif not errors.has_code(answer, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):  # else deleted
            refusals.append(answer)
    rows: list[Row]
    if partitions:
        rows = [
            {
                "topic": topic.name,
                "partition": partition.number,
                "leader": partition.leader if partition.leader >= 0 else None,
                "replicas": partition.replicas,
                "isr": partition.isr,
                "elr": partition.elr,
                "last_known_elr": partition.last_known_elr,
            }
            for topic in described
            for partition in topic.partitions
        ]
    else:
        own = await _own_configs(cluster, [topic.name for topic in described])
        rows = [
            {
                "topic": topic.name,
                "partition_count": len(topic.partitions),
                "replication_factor": len(topic.partitions[0].replicas) if topic.partitions else 0,
                "is_internal": topic.is_internal,
                "topic_id": uuid_text(topic.topic_id),
                "configs": own.get(topic.name),
            }
            for topic in described
        ]
    output.rows(
        rows,
        wide=("is_internal", "topic_id", "elr", "last_known_elr"),
        nothing=_NOTHING,
        problems=refusals,
    )


async def _own_configs(cluster: Cluster, names: Sequence[str]) -> dict[str, dict[str, str | None]]:
    """Return the configs that are set on topics; say on stderr which ones are refused."""
    own = {}
    described = await in_steps(
        names,
        _TOPICS_AT_ONCE,
        "describing configs",
        partial(configs.describe_configs, cluster, configs.ConfigType.TOPIC),
    )
    for name, answer in described.items():
        if isinstance(answer, errors.ClientError):
            tell(f"not shown: {answer}")
        else:
            own[name] = {
                config.name: config.value for config in answer if config.source != "DEFAULT_CONFIG"
            }
    return own


@NOUN.cluster_verb(
    "create",
    "create topics",
    arg("names", "TOPIC", "names", nargs="+"),
    arg(
        "--partitions",
        "N",
        "number of partitions (default: the broker's)",
        type=number_up_to(MAX_PARTITION),
    ),
    arg(
        "--replication-factor",
        "N",
        "replicas (default: the broker's)",
        type=number_up_to(_MAX_REPLICAS),
    ),
    repeatable("--config", "NAME=VALUE", "a config"),
    switch("--if-not-exists", "leave alone what exists"),
    DRY_RUN,
    examples="headrace topics create orders --partitions 12 --config retention.ms=86400000",
)
async def create_topics(
    cluster: Cluster,
    output: Output,
    *,
    names: Sequence[str],
    partitions: int | None,
    replication_factor: int | None,
    config: Sequence[tuple[str, str]],
    if_not_exists: bool,
) -> None:
    """Create topics, if the broker accepts all of them.

    :raises RequestRefused: it does not
    :raises Failure: some are not created, nevertheless
    """

    async def create(name: str, *, validate_only: bool) -> bool:
        topic = topics.NewTopic(
            name, partitions or -1, replication_factor or -1, configs=dict(config)
        )
        try:
            await topics.create_topic(cluster, topic, validate_only=validate_only)
        except errors.RequestRefused as refusal:
            if if_not_exists and refusal.code == ErrorCode.TOPIC_ALREADY_EXISTS:
                return False
            existing = next(iter(await cluster.all_topics()), None)
            if existing is None or refusal.code != ErrorCode.INVALID_CONFIG:
                raise
            kind = configs.ConfigType.TOPIC
            raise await with_hint(cluster, refusal, kind, existing, dict(config)) from refusal
        return True

    missing = [name for name in dict.fromkeys(names) if await create(name, validate_only=True)]
    execute = partial(_each, missing, partial(create, validate_only=False))
    await output.change(_changes(missing, "created"), execute, None)


async def _each(
    names: Sequence[str], change: Callable[[str], Awaitable[object]]
) -> dict[str, errors.ClientError]:
    """Change topics one by one, and return the errors by name."""
    failures = {}
    for name in names:
        try:
            await change(name)
        except errors.ClientError as error:
            failures[name] = error
    return failures


def _changes(names: Iterable[str], result: str) -> dict[str, Row]:
    return {name: {"topic": name, "result": result} for name in names}


@NOUN.cluster_verb(
    "alter",
    "add partitions to topics; configs are changed by headrace configs alter",
    _patterns("+"),
    arg(
        "--partitions",
        "N",
        "number of partitions afterwards",
        type=number_up_to(MAX_PARTITION),
        required=True,
    ),
    DRY_RUN,
    YES,
    examples="headrace topics alter orders --partitions 24",
)
async def alter_topics(
    cluster: Cluster, output: Output, *, patterns: Sequence[str], partitions: int
) -> None:
    """Add partitions, if the broker accepts it for all topics.

    :raises RequestRefused: it does not
    """
    names = list(await _matching(cluster, patterns))

    alter = partial(topics.create_partitions, cluster, count=partitions)
    for name in names:
        await alter(name, validate_only=True)
    await output.change(
        _changes(names, "altered"),
        partial(_each, names, alter),
        f"Give these topics {partitions} partitions? They cannot have fewer afterwards.",
    )


@NOUN.cluster_verb(
    "delete",
    "delete topics with their records",
    _patterns("+"),
    switch("--if-exists", "do nothing if there is no such topic"),
    DRY_RUN,
    YES,
    examples="headrace topics delete orders\nheadrace topics delete 'test-.*' --dry-run",
)
async def delete_topics(
    cluster: Cluster, output: Output, *, patterns: Sequence[str], if_exists: bool
) -> None:
    """Delete topics. A pattern does not reach the internal ones, which have to be named.

    :raises Failure: some are not deleted
    """
    matching = await _matching(cluster, patterns, may_miss=if_exists)
    names = [name for name, topic in matching.items() if not topic.is_internal or name in patterns]
    what = "1 topic with its" if len(names) == 1 else f"{len(names)} topics with their"
    await output.change(
        _changes(names, "deleted"),
        lambda: in_steps(
            names,
            _TOPICS_AT_ONCE,
            "deleting topics",
            partial(topics.delete_topics, cluster),
        ),
        f"Delete {what} records?",
    )
