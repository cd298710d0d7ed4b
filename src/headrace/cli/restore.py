"""``headrace restore``: copy a backup to a new data directory."""

from __future__ import annotations

from argparse import Namespace

from .backup import COPY_OPTIONS, run_copy
from .nouns import command
from .options import arg, data_dir_option


@command(
    "copy a backup to a new data directory, and check it against its checksums",
    arg("source", "BACKUP", "directory of the backup"),
    data_dir_option("data directory to create, or an empty one"),
    *COPY_OPTIONS,
    examples="headrace restore /backups/monday --data-dir /var/lib/restored",
)
def run(options: Namespace) -> int:
    """Restore the backup.

    :returns: the exit status
    :raises Failure: it failed
    """
    from headrace.backup.commands import restore  # a help does not import the broker

    return run_copy(options, restore, options.source, options.data_dir, "restored")
