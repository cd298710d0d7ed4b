"""Topics, configs and ACLs: read from memory, kept in SQLite.

Reads never touch the database. A write of one or many resources is one transaction, and memory
changes only after its commit, by the same entries that a start reads, so both are always equal. The
database is in WAL mode with ``synchronous=FULL``: a write is on disk when it returns. It costs one
fsync, and topics are rarely created. Without it a power cut could lose a topic whose records
``log.flush.interval.messages=1`` has promised to keep.

Everything is an entry of one table, with a kind, a key and a value. Each entry has a checksum,
because a flipped bit in a value is no damage for SQLite. One with a wrong checksum stops the start.

The schema has the version of the data directory's format.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import chain, starmap
from pathlib import Path
from secrets import token_bytes
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4
from zlib import crc32

from headrace.log.checked_file import FORMAT_VERSION, OtherVersion
from headrace.log_lines import get_logger, printable
from headrace.protocol.errors import StorageError
from headrace.protocol.internal_topics import INTERNAL_TOPICS
from headrace.protocol.uuid_text import uuid_text
from headrace.security.acls import Acl

from . import catalog_file

if TYPE_CHECKING:
    from headrace.protocol.schema import Encoded

MAX_TOPICS_PER_TRANSACTION = 2000
"""The topics or configured resources that one transaction of the catalog creates, changes or
deletes. A request with more takes several transactions, and other requests are served between them.
"""

CATALOG_LOG_BYTES = 4 << 20
"""The size of SQLite's log from which on its pages are written to the catalog after each commit,
which lets the log begin again.
"""

PRODUCER_ID_BLOCK = 1000
"""Producer ids are allocated in blocks: one catalog transaction each, and at most one block is lost
in a crash.
"""

log = get_logger("headrace.broker")

CATALOG_FILE = "headrace.db"
"""The catalog's file in the data directory."""
_APPLICATION_ID = 0x48454144  # "HEAD"
_SCHEMA = (
    "CREATE TABLE entries (kind TEXT, key TEXT, value TEXT NOT NULL, checksum INTEGER NOT NULL, "
    "PRIMARY KEY (kind, key)) WITHOUT ROWID"
)
_CLUSTER, _CONFIGS, _TOPIC, _DELETED, _ACL = "cluster", "configs", "topic", "deleted", "acl"
"""The kinds of entries. Their keys: a name, kind and name of a resource, the name of a topic, a
topic id, the fields of an ACL.
"""
Entry = tuple[str, str, Any]
"""Kind, key and value; None for an entry that is to be deleted."""
_PRIMARY_CODE = 0xFF
"""The part of SQLite's error codes that has the kind of the error."""
_NO_CONFIGS: Mapping[str, str] = MappingProxyType({})
NOT_CREATED = UUID(int=0)
"""The id of a topic that is planned."""


class CatalogError(StorageError):
    """An error of the database: it cannot be opened, or a write failed and changed nothing. The
    message is for users.
    """


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic at one moment. Each change creates a new value.

    :param partitions: the number of partitions, counted from 0
    :param configs: the configs of the topic itself, as text
    """

    name: str
    topic_id: UUID
    partitions: int
    configs: Mapping[str, str] = field(default_factory=lambda: _NO_CONFIGS, hash=False)

    @property
    def internal(self) -> bool:
        """True for a topic that holds the state of a coordinator."""
        return self.name in INTERNAL_TOPICS


class Catalog:
    """The topics, configs, ACLs and cluster id of a broker. Belongs to one thread.

    :param path: the database file, created if missing; None for a database in memory
    :raises CatalogError: when the file is damaged, is something else, or was written by another
        version
    :ivar cluster_id: 22 characters, as in Kafka; created with the database
    :ivar secret: 32 random bytes, created with the database: a key for what must stay the same
        after a restart and be unknown outside
    :ivar topics: all topics by name; not to be changed outside, as the others
    :ivar topics_by_id: all topics by id
    :ivar deleted_topics: the deleted topics whose directories may still exist, by id; also after a
        restart
    :ivar acls: all ACLs
    :ivar descriptions: the descriptions of all topics for Metadata, with the version of the topics
        that they describe, by the version of the response
    :ivar version: of the topics; every change of a topic, its configs or ACLs increases it
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._cluster: dict[str, Any] = {}
        self._folded: dict[str, str] = {}
        self._configs: dict[tuple[str, str], Mapping[str, str]] = {}
        self._producer_ids = range(0)
        self._sorted: tuple[int, list[str]] = (-1, [])
        self.topics: dict[str, Topic] = {}
        self.topics_by_id: dict[UUID, Topic] = {}
        self.deleted_topics: dict[UUID, Topic] = {}
        self.acls: dict[Acl, None] = {}
        self.descriptions: dict[int, tuple[int, Encoded]] = {}
        self.version = 0
        self._is_doubtful = False
        """True if the files must be replaced before the next write, because the disk has failed or
        may have failed.
        """
        try:
            if path is not None:
                catalog_file.complete_replacement(path)
                self._is_doubtful = catalog_file.may_be_unwritten(path)
            self._database = self._connect()
        except (OSError, sqlite3.Error) as error:
            raise CatalogError(f"cannot open {path}: {error}") from error
        try:
            problem = self._one("PRAGMA quick_check(1)")  # of the structure of the database
            if problem != "ok":
                raise ValueError(" ".join(str(problem).split()))
            if path is not None:
                catalog_file.make_private(self._database, path)
            self._prepare()
            self._load()
        except CatalogError:
            self._database.close()
            raise
        except (sqlite3.Error, ValueError, TypeError, LookupError, RecursionError) as error:
            self._database.close()
            hint = "" if path is None else f". {rebuild_hint(path)}"
            reason = printable(str(error))  # SQLite quotes what it cannot decode
            raise CatalogError(
                f"{path} is damaged, or not a database of headrace: {reason}{hint}"
            ) from error

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path or ":memory:", isolation_level=None)

    def _configure(self) -> None:
        """Make each commit durable. Checkpoints are our own, as SQLite hides errors of its own."""
        # with the last one a log that begins again is short
        for setting in ("synchronous = FULL", "wal_autocheckpoint = 0", "journal_size_limit = 0"):
            self._database.execute(f"PRAGMA {setting}")

    def _prepare(self) -> None:
        """Create the schema in a new database, or check an existing one."""
        version = self._one("PRAGMA user_version")
        if version == 0 and not self._one("SELECT count(*) FROM sqlite_master"):
            self._database.execute("PRAGMA journal_mode = WAL")
            self._configure()
            with self._transaction("create the catalog"):
                self._database.execute(_SCHEMA)
                self._apply(
                    [
                        (_CLUSTER, "id", uuid_text(_new_uuid())),
                        (_CLUSTER, "next_producer_id", 0),
                        (_CLUSTER, "secret", token_bytes(32).hex()),
                    ]
                )
                self._database.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
                self._database.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
        elif self._one("PRAGMA application_id") != _APPLICATION_ID:
            raise CatalogError(f"{self._path} is a database of another program")
        elif version != FORMAT_VERSION:
            raise CatalogError(str(OtherVersion(str(self._path), version)))
        else:
            self._configure()
            if self._one("SELECT group_concat(sql) FROM sqlite_master") != _SCHEMA:
                raise ValueError(f"its tables are not those of format {version}")

    def _load(self) -> None:
        # Ordered by kind: the configs of a topic come before the topic, which is then made once.
        for row in self._database.execute("SELECT * FROM entries ORDER BY kind, key"):
            if not is_whole(row):
                raise ValueError(f"an entry of {row[0]} has a wrong checksum")
            self._replay(*decoded(row))
        if not self._cluster.keys() >= {"id", "next_producer_id", "secret"}:
            raise ValueError("it has no cluster id, producer id or secret")
        self.cluster_id: str = self._cluster["id"]
        self.secret = bytes.fromhex(self._cluster["secret"])

    def _replay(self, kind: str, key: str, value: Any) -> None:
        """Change memory by an entry of the database, or one that was deleted from it."""
        if kind == _TOPIC and value is None:
            topic = self.topics.pop(key)
            del self.topics_by_id[topic.topic_id], self._folded[fold(key)]
        elif kind == _TOPIC:
            self._put(topic_of(key, value, self.configs("topic", key)))
        elif kind == _CONFIGS:
            resource = resource_of(key)
            self._configs.pop(resource, None)
            if value is not None:
                self._configs[resource] = value
            if resource[0] == "topic" and resource[1] in self.topics:
                self._put(replace(self.topics[resource[1]], configs=self.configs(*resource)))
        elif kind == _ACL:
            acl = Acl(*json.loads(key))
            self.acls.pop(acl, None)
            if value is not None:
                self.acls[acl] = None
        elif kind == _DELETED:
            self.deleted_topics.pop(UUID(key), None)
            if value is not None:
                self.deleted_topics[UUID(key)] = Topic(value[0], UUID(key), value[1])
        else:
            self._cluster[key] = value

    def _write(self, purpose: str, entries: Iterable[Entry]) -> None:
        """Write or delete entries in one transaction: all of them, or none. Then change memory.

        :raises CatalogError: when the database fails
        """
        entries = list(entries)
        with self._transaction(purpose):
            self._apply(entries)
        for entry in entries:
            self._replay(*entry)

    def _apply(self, entries: Iterable[Entry]) -> None:
        for kind, key, value in entries:
            if value is None:
                delete = "DELETE FROM entries WHERE kind = ? AND key = ?"
                self._database.execute(delete, (kind, key))
            else:
                row = with_checksum(kind, key, json.dumps(value))
                self._database.execute("REPLACE INTO entries VALUES (?, ?, ?, ?)", row)

    def _one(self, query: str) -> Any:
        return self._database.execute(query).fetchone()[0]

    @contextmanager
    def _transaction(self, purpose: str) -> Iterator[None]:
        try:
            self._replace_doubtful()
            self._database.execute("BEGIN IMMEDIATE")
            yield
            self._database.execute("COMMIT")
        except BaseException as error:
            self._note(error)
            with suppress(sqlite3.ProgrammingError):  # it may be closed
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error):
                raise CatalogError(f"cannot {purpose}: {error}") from error
            raise
        self._checkpoint()

    def _note(self, error: BaseException) -> None:
        """Note an error of the disk, after which the files are doubtful."""
        if getattr(error, "sqlite_errorcode", 0) & _PRIMARY_CODE == sqlite3.SQLITE_IOERR:
            self._is_doubtful = self._path is not None

    def _replace_doubtful(self) -> None:
        """Replace the files if they are doubtful; see :mod:`.catalog_file`.

        :raises CatalogError: when the disk fails; then they are still doubtful
        """
        if not self._is_doubtful:
            return
        assert self._path is not None
        try:
            catalog_file.replace(self._database, self._path)
            self._database = self._connect()
            self._configure()
        except (OSError, sqlite3.Error) as error:
            # Without the path: clients get this text.
            reason = error.strerror if isinstance(error, OSError) else error
            raise CatalogError(f"cannot replace {CATALOG_FILE}: {reason}") from error
        self._is_doubtful = False

    def _checkpoint(self) -> None:
        """Write the pages in SQLite's log to the database when there are many."""
        if self._path is None:
            return
        try:
            if os.path.getsize(f"{self._path}-wal") > CATALOG_LOG_BYTES:
                self._database.execute("PRAGMA wal_checkpoint")
        except FileNotFoundError:
            return
        except (OSError, sqlite3.Error) as error:
            self._note(error)
            log.error("cannot write the pages of %s, trying again later: %s", self._path, error)

    def _put(self, topic: Topic) -> None:
        self.topics[topic.name] = topic
        self.topics_by_id[topic.topic_id] = topic
        self._folded[fold(topic.name)] = topic.name

    # Topics ---------------------------------------------------------------------------------------

    def create_topic(
        self, name: str, partitions: int, configs: Mapping[str, str] = _NO_CONFIGS
    ) -> Topic:
        """Create a topic. The caller has checked name and configs.

        :raises CatalogError: when the database fails
        """
        self.create_topics([Topic(name, NOT_CREATED, partitions, configs)])
        return self.topics[name]

    def create_topics(self, planned: Sequence[Topic]) -> None:
        """Create topics, with new ids, in one transaction: all of them, or none. The caller has
        checked names and configs; the names must not collide with each other.

        :raises CatalogError: when the database fails
        """
        assert not any(self.twin(topic.name) for topic in planned)
        topics = [replace(topic, topic_id=_new_uuid()) for topic in planned]
        self._write(f"create {_named(topics)}", chain.from_iterable(map(_entries_of, topics)))
        self.version += 1

    def find(self, topic_id: UUID | None, name: str | None) -> Topic | None:
        """Return the topic that a request names, by its id or else by its name; None if it does not
        exist.
        """
        if topic_id is not None:
            return self.topics_by_id.get(topic_id)
        return self.topics.get(name or "")

    def sorted_names(self) -> Sequence[str]:
        """Return the names of all topics in order. They are sorted again after a change."""
        if self._sorted[0] != self.version:
            self._sorted = self.version, sorted(self.topics)
        return self._sorted[1]

    def twin(self, name: str) -> str | None:
        """Return the topic whose name collides with ``name``, None if there is none. Names collide
        if they are equal when '.' and '_' count as the same character.
        """
        return self._folded.get(fold(name))

    def delete_topics(self, topics: Sequence[Topic]) -> None:
        """Delete topics and their configs in one transaction: all of them, or none. They are in
        :attr:`deleted_topics` from then on.

        :raises CatalogError: when the database fails
        """
        entries: list[Entry] = []
        for topic in topics:
            entries += (
                (_TOPIC, topic.name, None),
                _configs_entry(("topic", topic.name), {}),
                (_DELETED, topic.topic_id.hex, (topic.name, topic.partitions)),
            )
        self._write(f"delete {_named(topics)}", entries)
        self.version += 1

    def forget_deleted_topics(self, topic_ids: Sequence[UUID]) -> None:
        """Forget deleted topics whose directories have been removed.

        :raises CatalogError: when the database fails
        """
        self._write(
            "forget deleted topics", ((_DELETED, topic_id.hex, None) for topic_id in topic_ids)
        )

    def grow_topics(self, totals: Mapping[str, int]) -> None:
        """Grow topics to these numbers of partitions in one transaction: all of them, or none.

        :raises CatalogError: when the database fails
        """
        grown = [replace(self.topics[name], partitions=total) for name, total in totals.items()]
        assert all(topic.partitions > self.topics[topic.name].partitions for topic in grown)
        self._write(
            f"add partitions to {_named(grown)}", chain.from_iterable(map(_entries_of, grown))
        )
        self.version += 1

    def fill(self, cluster_id: str | None, topics: Iterable[Topic], next_producer_id: int) -> None:
        """Write the content of a new catalog, which is to be opened again.

        :param cluster_id: None to keep the new one
        :raises CatalogError: when the database fails
        """
        cluster = [
            (_CLUSTER, "id", cluster_id or self.cluster_id),
            (_CLUSTER, "next_producer_id", next_producer_id),
        ]
        self._write("write the catalog", chain(cluster, *map(_entries_of, topics)))

    # Configs --------------------------------------------------------------------------------------

    def configs(self, kind: str, name: str) -> Mapping[str, str]:
        """Return the configs of a resource; empty if it has none or does not exist.

        :param kind: ``topic``, ``broker`` (its name is the id, or empty for all brokers) or
            ``group``
        """
        return self._configs.get((kind, name), _NO_CONFIGS)

    def configured(self, kind: str) -> list[str]:
        """Return the names of the resources of a kind that have configs."""
        return sorted(name for this_kind, name in self._configs if this_kind == kind)

    def alter_configs(self, changes: Mapping[tuple[str, str], Mapping[str, str | None]]) -> None:
        """Set configs of resources in one transaction: all of them, or none; a None value removes
        one. The caller has checked them.

        :param changes: by kind and name of the resource
        :raises CatalogError: when the database fails
        """
        altered = {}
        for resource, changed in changes.items():
            merged = {**self.configs(*resource), **changed}
            altered[resource] = {name: value for name, value in merged.items() if value is not None}
        first = " ".join(next(iter(changes)))
        self._write(
            f"alter the configs of {_and_others(first, len(changes))}",
            starmap(_configs_entry, altered.items()),
        )
        self.version += 1

    # ACLs -----------------------------------------------------------------------------------------

    def add_acls(self, acls: Sequence[Acl]) -> None:
        """Store new ACLs in one transaction: all of them, or none.

        :raises CatalogError: when the database fails
        """
        self._write(f"create {len(acls)} ACLs", ((_ACL, json.dumps(acl), True) for acl in acls))
        self.version += 1

    def remove_acls(self, acls: Sequence[Acl]) -> None:
        """Delete stored ACLs in one transaction: all of them, or none.

        :raises CatalogError: when the database fails
        """
        self._write(f"delete {len(acls)} ACLs", ((_ACL, json.dumps(acl), None) for acl in acls))
        self.version += 1

    # Producer ids ---------------------------------------------------------------------------------

    def allocate_producer_id(self) -> int:
        """Return a producer id that was never returned before, also across restarts.

        :raises CatalogError: when the database fails
        """
        if not self._producer_ids:
            first = self._cluster["next_producer_id"]
            following = first + PRODUCER_ID_BLOCK
            self._write("allocate producer ids", [(_CLUSTER, "next_producer_id", following)])
            self._producer_ids = range(first, following)
        allocated, self._producer_ids = self._producer_ids[0], self._producer_ids[1:]
        return allocated

    def view(self) -> sqlite3.Connection:
        """Return a second connection, which sees the database as it is now, whatever is written
        later. Any thread may use it, and must close it soon, as the file grows until then.

        :raises CatalogError: when the database cannot be read
        """
        assert self._path is not None
        self._replace_doubtful()
        try:
            view = sqlite3.connect(
                self._path, timeout=0, isolation_level=None, check_same_thread=False
            )
            view.execute("BEGIN")
            view.execute("SELECT value FROM entries LIMIT 1").fetchone()  # the view begins here
        except sqlite3.Error as error:
            raise CatalogError(f"cannot read {self._path}: {error}") from error
        return view

    def close(self) -> None:
        """Close the database."""
        try:
            self._replace_doubtful()
        except CatalogError as error:
            log.error("%s", error)
        self._database.close()


def with_checksum(kind: str, key: str, value: str) -> tuple[str, str, str, int]:
    """Return the row of an entry."""
    return kind, key, value, crc32(repr((kind, key, value)).encode())


def is_whole(row: tuple[Any, ...]) -> bool:
    """Return True if a row has the right checksum."""
    return with_checksum(*row[:3]) == row


def decoded(row: tuple[Any, ...]) -> Entry:
    """Return the entry of a row."""
    kind, key, value, _ = row
    return kind, key, json.loads(value)


def topic_of(name: str, value: Any, configs: Mapping[str, str]) -> Topic:
    """Return the topic that an entry describes."""
    topic_id, partitions = value
    return Topic(name, UUID(topic_id), partitions, configs)


def resource_of(key: str) -> tuple[str, str]:
    """Return kind and name of the resource whose configs an entry has."""
    kind, _, name = key.partition(" ")
    return kind, name


def _configs_entry(resource: tuple[str, str], configs: Mapping[str, str]) -> Entry:
    return _CONFIGS, " ".join(resource), dict(configs) or None


def _entries_of(topic: Topic) -> Iterator[Entry]:
    yield _TOPIC, topic.name, (topic.topic_id.hex, topic.partitions)
    if topic.configs:
        yield _configs_entry(("topic", topic.name), topic.configs)


def rebuild_hint(path: Path) -> str:
    """Return the advice for a catalog that is lost."""
    return (
        f"Restore {path.name} from a backup, or rebuild it from the directories: "
        f"headrace recover --data-dir {path.parent}"
    )


def fold(name: str) -> str:
    """Return the text that colliding topic names have in common, see :meth:`Catalog.twin`."""
    return name.replace(".", "_")


def _named(topics: Sequence[Topic]) -> str:
    return _and_others(f"topic {topics[0].name}", len(topics))


def _and_others(first: str, count: int) -> str:
    """Return the name of one resource, and how many others there are."""
    return first if count == 1 else f"{first} and {count - 1} others"


def _new_uuid() -> UUID:
    """Return a random id whose text does not start with a dash, as in Kafka: on command lines it
    would look like an option.
    """
    while True:
        topic_id = uuid4()
        if not uuid_text(topic_id).startswith("-"):
            return topic_id
