"""Compare the catalog with the partition directories at a start. In doubt, delete nothing."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from headrace.log import directory_format, known_partitions
from headrace.log.data_directory import STRAY_SUFFIX, DataDirectory
from headrace.log.known_partitions import Known, KnownTopic
from headrace.log.verify import log_files
from headrace.log_lines import get_logger
from headrace.protocol.uuid_text import uuid_text
from headrace.topics.catalog import CATALOG_FILE, Catalog, CatalogError, Topic, rebuild_hint

MISSING_PARTITIONS_LOGGED = 20
"""The partitions without their directories that a refused start names, each on a line."""

log = get_logger("headrace.broker")


def open_catalog(directory: DataDirectory) -> Catalog:
    """Return the catalog of a data directory, and set aside the directories of partitions that it
    does not have.

    :raises CatalogError: when the catalog or a directory is lost, or the catalog cannot be used;
        nothing was changed
    :raises UnusableDirectory: when the catalog is of another data directory
    :raises OSError: when the disk fails
    """
    path = Path(directory.path) / CATALOG_FILE
    state = absence(path)
    if state is not None:  # opening it would create it
        _refuse_if_records(directory, path, state)
        if directory_format.saved_cluster_id(directory.path) is not None:
            raise CatalogError(
                f"{path} {state}, but {directory_format.FORMAT_FILE} beside it says that a broker "
                f"has used the directory. {rebuild_hint(path)}"
            )
    catalog = Catalog(path)
    try:
        if not catalog.topics and not catalog.deleted_topics:
            _refuse_if_records(directory, path, "has no topics")
        saved = known_partitions.read(directory.path)
        _check_partitions_exist(directory, catalog, saved)
        directory_format.settle(directory.path, catalog.cluster_id)
        _set_aside_unknown(directory, catalog)
        _save_known_partitions(directory, catalog, saved)
    except BaseException:
        catalog.close()
        raise
    return catalog


def absence(path: Path) -> str | None:
    """Return how a catalog is lost: ``is missing`` or ``is empty``; None if there is one."""
    if not path.exists():
        return "is missing"
    return None if path.stat().st_size else "is empty"


def missing_partitions(
    directory: DataDirectory, topics: Mapping[str, Topic], saved: Known
) -> list[str]:
    """Return the names of the partitions that had a directory and have none now, in order. One that
    was set aside is not missing.

    :param topics: the topics of the catalog by name
    :param saved: the partitions that had a directory
    :raises OSError: when the disk fails
    """
    missing = []
    for name, saved_topic in saved.items():
        topic = topics.get(name)
        if topic is not None and uuid_text(topic.topic_id) == saved_topic.topic_id:
            gone = saved_topic.partitions.difference(directory.partitions.get(name, ()))
            missing += [(name, partition) for partition in gone if partition < topic.partitions]
    if not missing:
        return []
    strays = [name for name in os.listdir(directory.path) if name.endswith(STRAY_SUFFIX)]
    names = [f"{name}-{partition}" for name, partition in sorted(missing)]
    return [name for name in names if not any(stray.startswith(f"{name}.") for stray in strays)]


def _check_partitions_exist(directory: DataDirectory, catalog: Catalog, saved: Known) -> None:
    """Check that no partition has lost its directory while no broker ran."""
    missing = missing_partitions(directory, catalog.topics, saved)
    if not missing:
        return
    for name in missing[:MISSING_PARTITIONS_LOGGED]:
        log.error("%s had records, and its directory %s/%s is missing", name, directory.path, name)
    others = len(missing) - 1
    raise CatalogError(
        f"{directory.path}/{missing[0]} is missing"
        + (f", and {others} other directories of partitions" if others else "")
        + ": deleted, moved or renamed while no broker ran. Put it back, or restore the data "
        "directory from a backup. To go on without the records that it had: "
        f"headrace recover --data-dir {directory.path}"
    )


def _save_known_partitions(directory: DataDirectory, catalog: Catalog, saved: Known) -> None:
    """Save which partitions have a directory, if that has changed since it was saved."""
    deleted = {topic.name for topic in catalog.deleted_topics.values()}
    topics = {}
    for name, partitions in directory.partitions.items():
        topic = catalog.topics.get(name)
        if topic is None:
            continue
        topic_id = uuid_text(topic.topic_id)
        if name not in deleted:
            topics[name] = KnownTopic(topic_id, set(partitions))
        elif name in saved and saved[name].topic_id == topic_id:
            topics[name] = saved[name]  # other directories may be those of the deleted topic
    if topics != saved:
        directory.make_durable()
        known_partitions.replace(directory.path, topics)


def _set_aside_unknown(directory: DataDirectory, catalog: Catalog) -> None:
    """Set aside the directories of partitions that the catalog does not have, except those of
    deleted topics, which are removed. The topic id of a directory is checked when its log is first
    used or removed.
    """
    deleted = {topic.name for topic in catalog.deleted_topics.values()}
    for name in directory.partition_names():
        topic_name, _, partition = name.rpartition("-")
        topic = catalog.topics.get(topic_name)
        if topic is None and topic_name in deleted:
            continue
        if topic is None:
            reason = f"the catalog has no topic {topic_name}"
        elif int(partition) >= topic.partitions:
            reason = f"the catalog has {topic.partitions} partitions of {topic_name}"
        else:
            continue
        if directory.holds_log(name):
            directory.set_aside(name, reason)
            directory.forget(topic_name, [int(partition)])


def _refuse_if_records(directory: DataDirectory, path: Path, state: str) -> None:
    files = log_files(directory.path, directory.partition_names())
    names = sorted({file.partition for file in files if file.size_bytes})
    if names:
        raise CatalogError(
            f"{path} {state}, but {len(names)} partition directories beside it, such as "
            f"{names[0]}, have records. {rebuild_hint(path)}"
        )
