"""The file ``format`` of a data directory, with the version of the format and the cluster id, and
the mark of a copy that is not complete.

The catalog has the same version; so does each small file, see :mod:`headrace.log.checked_file`.
"""

from __future__ import annotations

import os
import re

from headrace.log import checked_file
from headrace.log.checked_file import OtherVersion
from headrace.log.files import read_file

FORMAT_FILE = "format"
INCOMPLETE_FILE = "incomplete"
"""In a directory that ``headrace backup`` or ``headrace restore`` has not finished."""
_KAFKA_FILE = "meta.properties"
_OF_KAFKA = re.compile(rb"^(node|broker|directory)\.id=", re.MULTILINE)
"""Properties that Apache Kafka writes."""


class UnusableDirectory(RuntimeError):
    """A data directory that cannot be used; the message says why, on one line."""


def check(directory: str) -> None:
    """Check that this version can use a directory. Nothing is written.

    :raises UnusableDirectory: when another version or Apache Kafka has written it, or it is an
        incomplete copy
    :raises OSError: when it cannot be read
    """
    if os.path.exists(f"{directory}/{INCOMPLETE_FILE}"):
        raise UnusableDirectory(
            f"{directory} is a backup or a restore that was not finished: delete it and start again"
        )
    if _OF_KAFKA.search(read_file(f"{directory}/{_KAFKA_FILE}")):
        raise UnusableDirectory(
            f"{directory} has the data of Apache Kafka, which must stay as it is: name another "
            "directory"
        )
    saved_cluster_id(directory)


def saved_cluster_id(directory: str) -> str | None:
    """Return the cluster id of a directory; None if ``format`` is missing, or damaged, which is
    logged.

    :raises UnusableDirectory: when another version has written it
    :raises OSError: when the file cannot be read
    """
    path = f"{directory}/{FORMAT_FILE}"
    try:
        cluster_id: str | None = checked_file.read_or_warn(
            path, "it is written again from the catalog"
        )
    except OtherVersion as error:
        raise UnusableDirectory(str(error)) from error
    return cluster_id


def settle(directory: str, cluster_id: str) -> None:
    """Write ``format``, forced to disk, unless it says the same already.

    :param cluster_id: the cluster id in the catalog
    :raises UnusableDirectory: when the file has another cluster id
    :raises OSError: when the disk fails
    """
    saved = saved_cluster_id(directory)
    if saved is None:
        checked_file.replace(f"{directory}/{FORMAT_FILE}", cluster_id, sync=True)
    elif saved != cluster_id:
        raise UnusableDirectory(
            f"the catalog in {directory} is of cluster {cluster_id}, but {FORMAT_FILE} is of "
            f"cluster {saved}: they are from different directories"
        )
