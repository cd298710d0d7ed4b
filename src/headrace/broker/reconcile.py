"""Compare the catalog with the partition directories at a start, and delete nothing on doubt."""

from __future__ import annotations

from pathlib import Path

from headrace.log import directory_format
from headrace.log.data_directory import DataDirectory

from .catalog import Catalog, CatalogError, rebuild_hint


def check_catalog_exists(directory: DataDirectory, path: Path) -> None:
    """Check that the catalog is not missing or empty in a directory that a broker has used. Call
    this before the catalog is created.

    :raises CatalogError: when it is; nothing was changed
    """
    if not path.exists():
        state = "is missing"
    elif not path.stat().st_size:
        state = "is empty"
    else:
        return
    _refuse_if_records(directory, path, state)
    if directory_format.read(directory.path) is not None:
        raise CatalogError(
            f"{path} {state}, but {directory_format.META_FILE} beside it says that a broker has "
            f"used the directory. {rebuild_hint(path)}"
        )


def check_catalog_has_topics(directory: DataDirectory, catalog: Catalog, path: Path) -> None:
    """Check that a catalog without topics is not beside directories with records.

    :raises CatalogError: when it is; nothing was changed
    """
    if not catalog.topics and not catalog.deleted_topics:
        _refuse_if_records(directory, path, "has no topics")


def set_aside_unknown(directory: DataDirectory, catalog: Catalog) -> None:
    """Set aside the directories of partitions that the catalog does not have, except those of
    deleted topics, which are removed. The topic id of a directory is checked when its log is first
    used or removed.

    :raises OSError: when the disk fails
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
    held = [name for name in sorted(directory.partition_names()) if directory.holds_records(name)]
    if held:
        raise CatalogError(
            f"{path} {state}, but {len(held)} partition directories beside it, such as {held[0]}, "
            f"have records. {rebuild_hint(path)}"
        )
