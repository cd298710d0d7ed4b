"""Rebuild a lost catalog from what the partition directories say, and give up partitions whose
directories are missing.
"""

from __future__ import annotations

import os
import sqlite3
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.log import directory_format, known_partitions, partition_metadata
from headrace.log.data_directory import DataDirectory
from headrace.log.files import opened, read_file
from headrace.log.producer_state import ProducerState
from headrace.log.recovery import snapshot_offsets, snapshot_path
from headrace.log.segment import scan
from headrace.log.verify import log_files
from headrace.protocol.internal_topics import INTERNAL_TOPICS
from headrace.topics.catalog import (
    CATALOG_FILE,
    Catalog,
    CatalogError,
    Topic,
    decoded,
    is_whole,
    resource_of,
    topic_of,
)
from headrace.topics.catalog_file import SIDES, remove
from headrace.topics.topic_rules import check_topic_name

from .config.broker_config import Config
from .reconcile import absence, missing_partitions

PRODUCER_ID_HEADROOM = 1_000_000
"""The next producer id after the largest one in the logs: producers may have been given ids that
are in no log.
"""
KEEP_EVERYTHING: Mapping[str, str] = {"retention.ms": "-1", "retention.bytes": "-1"}
"""The configs of a topic whose own are lost: retention by the defaults might delete its records."""


@dataclass(frozen=True, slots=True)
class FoundTopic:
    """A topic as its directories describe it.

    :ivar directories: number of directories
    :ivar has_configs: True if its configs are known
    :ivar is_counted: True if its number of partitions is known; otherwise it may have had more,
        which never had a record
    :ivar others: directories that name another topic id: the next start sets them aside
    """

    topic: Topic
    directories: int
    has_configs: bool
    is_counted: bool
    others: Sequence[str]


@dataclass(frozen=True, slots=True)
class Rebuild:
    """The plan of a rebuild.

    :ivar reason: the reason why the catalog cannot be used; None if it can and stays as it is
    :ivar cluster_id: None if it is lost
    :ivar missing: the partitions whose directories are missing, to be given up
    """

    reason: str | None
    cluster_id: str | None
    topics: Sequence[FoundTopic]
    next_producer_id: int
    missing: Sequence[str]

    @property
    def is_needed(self) -> bool:
        """True if there is anything to do."""
        return self.reason is not None or bool(self.missing)


def plan(directory: DataDirectory, config: Config) -> Rebuild:
    """Return what a rebuild would do. Nothing is changed.

    :param config: for the numbers of partitions and the configs of internal topics
    :raises OSError: when the disk fails
    """
    path = Path(directory.path) / CATALOG_FILE
    names = [name for name in sorted(directory.partition_names()) if directory.holds_log(name)]
    has_records = any(file.size_bytes for file in log_files(directory.path, names))
    reason, topics = _opened(path, has_records=has_records)
    saved = known_partitions.read(directory.path)
    if reason is None:
        return Rebuild(None, None, (), 0, missing_partitions(directory, topics, saved))
    cluster, salvaged = _salvage(path)
    of_topic: dict[str, list[str]] = {}
    for name in names:
        topic_name = name.rpartition("-")[0]
        if check_topic_name(topic_name) is None:
            of_topic.setdefault(topic_name, []).append(name)
    described = [
        _describe(directory, name, of_topic.get(name, ()), salvaged.get(name), config)
        for name in sorted({*of_topic, *salvaged})
    ]
    topics = {described_topic.topic.name: described_topic.topic for described_topic in described}
    largest = max((_largest_producer_id(directory.path, name) for name in names), default=-1)
    return Rebuild(
        reason,
        directory_format.saved_cluster_id(directory.path) or cluster.get("id"),
        described,
        max(cluster.get("next_producer_id", 0), largest + 1) + PRODUCER_ID_HEADROOM,
        missing_partitions(directory, topics, saved),
    )


def carry_out(directory: DataDirectory, rebuild: Rebuild) -> str | None:
    """Carry out a plan: write the catalog, and give up the missing partitions. The old files are
    kept; return the new name of the old catalog, None if there was none or it is sound.

    :raises CatalogError: when the database fails
    :raises OSError: when the disk fails
    """
    if rebuild.missing:
        split = (name.rpartition("-") for name in rebuild.missing)
        withdrawn = [(topic, None, int(number)) for topic, _, number in split]
        known_partitions.append(directory.path, withdrawn, sync=True)
    return None if rebuild.reason is None else _replace_catalog(directory, rebuild)


def _replace_catalog(directory: DataDirectory, rebuild: Rebuild) -> str | None:
    path = f"{directory.path}/{CATALOG_FILE}"
    rebuilt = f"{path}.rebuilt"
    remove(rebuilt, ("", *SIDES))
    topics = [described.topic for described in rebuild.topics]
    with closing(Catalog(Path(rebuilt))) as catalog:
        catalog.fill(rebuild.cluster_id, topics, rebuild.next_producer_id)
    old_name = None
    mark = uuid.uuid4().hex
    for suffix in (*SIDES, ""):
        if os.path.exists(path + suffix):
            old_name = f"{CATALOG_FILE}.{mark}-damaged"
            os.rename(path + suffix, f"{directory.path}/{old_name}{suffix}")
    os.rename(rebuilt, path)
    return old_name


def _opened(path: Path, *, has_records: bool) -> tuple[str | None, Mapping[str, Topic]]:
    """Return the reason why a catalog cannot be used, None if it can, and its topics by name."""
    state = absence(path)
    if state is not None:
        return f"{path.name} {state}", {}
    try:
        catalog = Catalog(path)
    except CatalogError as error:
        return str(error).partition(". Restore")[0], {}
    catalog.close()
    reason = f"{path.name} has no topics" if has_records and not catalog.topics else None
    return reason, catalog.topics


def _describe(
    directory: DataDirectory,
    name: str,
    directories: Sequence[str],
    salvaged: Topic | None,
    config: Config,
) -> FoundTopic:
    by_directory = {
        dir_name: metadata
        for dir_name in directories
        if (metadata := partition_metadata.read(f"{directory.path}/{dir_name}")) is not None
    }
    votes = Counter(metadata.topic_id for metadata in by_directory.values())
    if salvaged is not None and (not votes or salvaged.topic_id in votes):
        topic_id = salvaged.topic_id
    else:
        salvaged = None
        topic_id = votes.most_common(1)[0][0] if votes else uuid.uuid4()
    others = [
        dir_name for dir_name, metadata in by_directory.items() if metadata.topic_id != topic_id
    ]
    counts = [
        metadata.partitions for metadata in by_directory.values() if metadata.topic_id == topic_id
    ]
    configs = None
    if salvaged is not None:
        counts.append(salvaged.partitions)
        configs = salvaged.configs
    least = 1 + max((int(dir_name.rpartition("-")[2]) for dir_name in directories), default=-1)
    partitions, is_counted = max([least, *counts]), any(counts)
    if directories and name in INTERNAL_TOPICS:
        default, configs = config.internal_topic(name)
        partitions = partitions if is_counted else max(partitions, default)
    topic = Topic(name, topic_id, partitions, KEEP_EVERYTHING if configs is None else configs)
    return FoundTopic(topic, len(directories), configs is not None, is_counted, others)


def _largest_producer_id(directory: str, name: str) -> int:
    """Return the largest producer id in the snapshots and the last segment of a log, or -1."""
    ids = {-1}
    path = f"{directory}/{name}"
    for offset in snapshot_offsets(path):
        producers = ProducerState.from_snapshot(read_file(snapshot_path(path, offset)))
        ids.update(producer_id for producer_id, _ in producers or ())
    for file in log_files(directory, [name])[-1:]:
        with opened(file.path) as fd:
            ids.update(header.producer_id for _, header, _ in scan(fd, 0, file.size_bytes))
    return max(ids)


def _salvage(path: Path) -> tuple[Mapping[str, Any], Mapping[str, Topic]]:
    """Return what can be read from a damaged catalog: the facts of the cluster, and the topics, by
    name.
    """
    cluster, configs, topics = {}, {}, {}
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
            for row in database.execute("SELECT * FROM entries ORDER BY kind, key"):
                if not is_whole(row):
                    continue
                kind, key, value = decoded(row)  # with a right checksum: as it was written
                if kind == "cluster":
                    cluster[key] = value
                elif kind == "configs":
                    configs[resource_of(key)] = value
                elif kind == "topic":
                    topics[key] = topic_of(key, value, configs.get(("topic", key), {}))
    except (sqlite3.Error, TypeError):
        pass  # missing, empty, or damaged from here on
    return cluster, topics
