"""``headrace recover``: rebuild a lost catalog from the partition directories, and give up
partitions whose directories are missing.
"""

from __future__ import annotations

import logging
import sys
from argparse import Namespace
from typing import TYPE_CHECKING

from headrace.protocol.uuid_text import uuid_text

from .errors import BadUsage, Failure
from .nouns import command
from .options import DRY_RUN, YES, data_dir_option, repeatable
from .output import Output, Row, confirm, output_option
from .tables import one_line
from .verify import print_kept

if TYPE_CHECKING:
    from headrace.broker.catalog_rebuild import Rebuild

_LOST = (
    "The directories do not record everything. Lost are topics without records, configs of brokers "
    "and groups, users, ACLs, client quotas, and, where the table says no, configs of topics, "
    "whose retention is switched off, and partitions without records. Directories of other "
    "topics are set aside. With an authorizer, only super.users are allowed anything until you "
    "add ACLs again; headrace serve --add-scram-file adds an administrator."
)

_GIVEN_UP = (
    "To keep them, put the directories back or restore a backup. Partitions that are given up "
    "begin again at offset 0: consumers with larger offsets start where auto.offset.reset says."
)


@command(
    "rebuild the catalog of a data directory (headrace.db) from its partition directories, and "
    "give up partitions whose directories are missing. The broker must be stopped",
    data_dir_option("the broker's data directory"),
    DRY_RUN,
    YES,
    repeatable(
        "-c",
        "KEY=VALUE",
        "a config that the broker is started with, for the internal topics",
        dest="configs",
    ),
    output_option,
    examples="headrace recover --data-dir /var/lib/headrace --dry-run",
)
def run(options: Namespace) -> int:
    """Print the plan, ask, and carry it out.

    :returns: the exit status
    :raises Failure: it failed
    """
    # A help does not import the broker.
    from headrace.broker.catalog_rebuild import carry_out, plan
    from headrace.broker.config.broker_config import Config
    from headrace.broker.descriptors import descriptor_budget
    from headrace.log.data_directory import DataDirectory
    from headrace.log.directory_format import UnusableDirectory
    from headrace.log.directory_lock import DirectoryInUse
    from headrace.log.recovery import kept_files
    from headrace.protocol.errors import ConfigError
    from headrace.topics.catalog import CatalogError

    logging.basicConfig(level=logging.ERROR, format="%(message)s")
    try:
        config = Config(dict(options.configs))
    except ConfigError as error:
        raise BadUsage(str(error)) from error
    output = Output(options.output)
    if not options.data_dir.is_dir():
        raise Failure(f"{options.data_dir} is not a directory")
    try:
        directory = DataDirectory(
            options.data_dir, descriptor_budget().files, address="headrace recover"
        )
        try:
            rebuild = plan(directory, config)
            damaged = kept_files(directory.path, sorted(directory.partition_names()))
            if not output.is_json:
                _print(output, rebuild)
                print_kept(damaged)
            executes = rebuild.is_needed and not options.dry_run
            old_catalog = None
            if executes:
                sys.stdout.flush()
                steps = [f"give up {name} with all its records" for name in rebuild.missing]
                if rebuild.reason is not None:
                    steps.insert(0, f"rebuild the catalog: {rebuild.reason}")
                confirm("Recover?", steps, yes=options.yes)
                old_catalog = carry_out(directory, rebuild)
        finally:
            directory.abandon()
    except (CatalogError, DirectoryInUse, UnusableDirectory, OSError) as error:
        raise Failure(str(error)) from error
    if output.is_json:
        output.rows(
            [
                {
                    "reason": rebuild.reason,
                    "executed": executes,
                    "old_catalog": old_catalog,
                    "cluster_id": rebuild.cluster_id,
                    "missing_partitions": list(rebuild.missing),
                    "topics": _topics(rebuild),
                    "kept": damaged,
                }
            ]
        )
    elif executes:
        print(f"Recovered{f'; the old catalog is {old_catalog}' if old_catalog else ''}.")
    elif rebuild.is_needed:
        print("Nothing was changed.")
    return 0


def _print(output: Output, rebuild: Rebuild) -> None:
    if not rebuild.is_needed:
        print("The catalog is sound: there is nothing to recover.")
        return
    if rebuild.reason is not None:
        print(f"{one_line(rebuild.reason)}.")
        output.rows(_topics(rebuild), wide=("configs",), nothing="no topics")
        print(f"Cluster id: {rebuild.cluster_id or 'lost, a new one is made'}.")
        print(_LOST)
    if rebuild.missing:
        print("The directories of these partitions are missing, with all their records:")
        for name in rebuild.missing:
            print(f"  {one_line(name)}")
        print(_GIVEN_UP)


def _topics(rebuild: Rebuild) -> list[Row]:
    return [
        {
            "topic": described.topic.name,
            "topic_id": uuid_text(described.topic.topic_id),
            "partition_count": described.topic.partitions,
            "partitions_known": described.is_counted,
            "directory_count": described.directories,
            "configs": dict(described.topic.configs),
            "configs_known": described.has_configs,
            "of_other_topics": list(described.others),
        }
        for described in rebuild.topics
    ]
