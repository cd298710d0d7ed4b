"""The catalog: what was written is there after any end, and nothing else."""

from __future__ import annotations

import itertools
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headrace.topics.catalog import Catalog, CatalogError, Topic

NAMES = st.sampled_from(["a", "b", "c.d", "e_f"])
CHANGES = st.dictionaries(
    st.sampled_from(["retention.ms", "flush.ms"]),
    st.one_of(st.none(), st.sampled_from(["1", "2"])),
    min_size=1,
)


class CatalogModel(RuleBasedStateMachine):
    """The catalog does what a dict would do, and still knows it after a crash at any point."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.generation = 0
        self.catalog = Catalog(self.path)
        self.cluster_id = self.catalog.cluster_id
        self.topics: dict[str, Topic] = {}
        self.groups: dict[str, dict[str, str]] = {}
        self.producer_ids: set[int] = set()

    @property
    def path(self) -> Path:
        directory = self.root / str(self.generation)
        directory.mkdir(exist_ok=True)
        return directory / "headrace.db"

    @rule(
        name=NAMES,
        partitions=st.integers(1, 9),
        configs=st.sampled_from([{}, {"retention.ms": "5"}]),
    )
    def create(self, name: str, partitions: int, configs: dict[str, str]) -> None:
        if name not in self.topics:
            self.topics[name] = self.catalog.create_topic(name, partitions, configs)
            assert self.topics[name].configs == configs

    @precondition(lambda self: self.topics)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.topics)))
        topic = self.catalog.topics[name]
        assert topic == self.topics.pop(name)
        self.catalog.delete_topics([topic])
        assert self.catalog.configs("topic", name) == {}

    @precondition(lambda self: self.topics)
    @rule(data=st.data(), more=st.integers(1, 5))
    def grow(self, data: st.DataObject, more: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.topics)))
        total = self.topics[name].partitions + more
        self.catalog.grow_topics({name: total})
        self.topics[name] = self.catalog.topics[name]
        assert self.topics[name].partitions == total

    @precondition(lambda self: self.topics)
    @rule(data=st.data(), changes=CHANGES)
    def alter_topic(self, data: st.DataObject, changes: dict[str, str | None]) -> None:
        name = data.draw(st.sampled_from(sorted(self.topics)))
        before, version = self.topics[name], self.catalog.version
        self.catalog.alter_configs({("topic", name): changes})
        self.topics[name] = self.catalog.topics[name]
        expected = {
            key: value for key, value in {**before.configs, **changes}.items() if value is not None
        }
        assert self.topics[name].configs == expected
        assert self.topics[name].topic_id == before.topic_id
        assert self.catalog.version > version

    @rule(name=NAMES, changes=CHANGES)
    def alter_group(self, name: str, changes: dict[str, str | None]) -> None:
        self.catalog.alter_configs({("group", name): changes})
        after = {**self.groups.get(name, {}), **changes}
        self.groups[name] = {key: value for key, value in after.items() if value is not None}

    @rule()
    def allocate_producer_id(self) -> None:
        allocated = self.catalog.allocate_producer_id()
        assert allocated not in self.producer_ids
        self.producer_ids.add(allocated)

    @rule()
    def crash(self) -> None:
        """Go on with the files as they are on disk at this moment."""
        old = self.path.parent
        self.generation += 1
        shutil.copytree(old, self.path.parent, dirs_exist_ok=True)
        self.catalog.close()
        self.catalog = Catalog(self.path)

    @rule()
    def restart(self) -> None:
        self.catalog.close()
        self.catalog = Catalog(self.path)

    @invariant()
    def knows_what_was_written(self) -> None:
        assert self.catalog.cluster_id == self.cluster_id
        assert self.catalog.topics == self.topics
        assert self.catalog.topics_by_id == {
            topic.topic_id: topic for topic in self.topics.values()
        }
        for name, configs in self.groups.items():
            assert self.catalog.configs("group", name) == configs
        assert self.catalog.configured("group") == sorted(
            name for name, configs in self.groups.items() if configs
        )
        for name in self.topics:
            assert self.catalog.twin(name.replace(".", "_")) == name
        assert self.catalog.twin("unheard.of") is None

    def teardown(self) -> None:
        self.catalog.close()
        shutil.rmtree(self.root)


TestCatalogModel = CatalogModel.TestCase
TestCatalogModel.settings = settings(max_examples=15, stateful_step_count=20, deadline=None)


def test_a_topic_created_again_is_another_topic(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path / "headrace.db")
    first = catalog.create_topic("t", 1, {"retention.ms": "1"})
    catalog.delete_topics([first])
    second = catalog.create_topic("t", 1)
    assert first.topic_id != second.topic_id
    assert second.configs == {}
    assert list(catalog.topics_by_id) == [second.topic_id]


def test_a_secret_stays(tmp_path: Path) -> None:
    path = tmp_path / "headrace.db"
    secrets = set()
    for _ in range(2):
        catalog = Catalog(path)
        secrets.add(catalog.secret)
        catalog.close()
    (secret,) = secrets
    assert len(secret) == 32
    assert Catalog().secret != secret


def test_without_a_path_nothing_is_kept() -> None:
    catalog = Catalog()
    catalog.create_topic("__consumer_offsets", 2)
    assert catalog.topics["__consumer_offsets"].internal
    assert len(catalog.cluster_id) == 22
    assert not Catalog().topics
    assert Catalog().cluster_id != catalog.cluster_id


def test_a_refused_write_changes_nothing(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path / "headrace.db")
    topic = catalog.create_topic("t", 1, {"retention.ms": "1"})
    version = catalog.version
    # as good as a full disk: every write is refused
    catalog._database.execute("PRAGMA query_only = ON")
    for write in (
        lambda: catalog.create_topic("other", 1),
        lambda: catalog.delete_topics([topic]),
        lambda: catalog.grow_topics({"t": 5}),
        lambda: catalog.alter_configs({("topic", "t"): {"retention.ms": None}}),
        catalog.allocate_producer_id,
    ):
        with pytest.raises(CatalogError, match=r"^cannot "):
            write()
    assert catalog.topics == {"t": topic}
    assert catalog.configs("topic", "t") == {"retention.ms": "1"}
    assert catalog.version == version
    catalog._database.execute("PRAGMA query_only = OFF")
    catalog.grow_topics({"t": 5})
    assert catalog.topics["t"].partitions == 5
    assert catalog.allocate_producer_id() == 0


def test_a_write_after_one_that_failed_unexpectedly(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path / "headrace.db")
    with pytest.raises(UnicodeEncodeError):
        catalog.alter_configs({("group", "g"): {"a": "1"}, ("group", "\ud800"): {"a": "1"}})
    catalog.create_topic("t", 1)
    catalog.close()
    reopened = Catalog(tmp_path / "headrace.db")
    assert (list(reopened.topics), reopened.configured("group")) == (["t"], [])
    reopened.close()


def test_what_is_not_a_catalog_is_said_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "headrace.db"

    def refusal() -> str:
        with pytest.raises(CatalogError) as refused:
            Catalog(path)
        message = str(refused.value)
        assert str(path) in message
        assert "\n" not in message
        return message

    path.write_bytes(b"not a database at all" * 500)
    assert "damaged" in refusal()
    path.unlink()

    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE theirs (x)")
    other.close()
    assert "another program" in refusal()
    path.unlink()

    Catalog(path).close()
    with sqlite3.connect(path) as other:
        other.execute("PRAGMA user_version = 99")
    other.close()
    assert "another headrace" in refusal()
    path.unlink()

    catalog = Catalog(path)
    catalog.create_topic("t", 1)
    catalog.close()
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))
    assert "damaged" in refusal()


def leave_unclosed(path: Path, *topics: str) -> None:
    """Leave the files of a catalog as ``kill -9`` leaves them."""
    running = path.with_name("running")
    running.mkdir()
    catalog = Catalog(running / path.name)
    for topic in topics:
        catalog.create_topic(topic, 1)
    for file in sorted(running.iterdir()):
        shutil.copy(file, path.with_name(file.name))
    catalog.close()
    shutil.rmtree(running)


def test_a_catalog_that_was_not_closed_gets_new_files_before_a_change(tmp_path: Path) -> None:
    """A write to the old ones may have failed, which only the process knew."""
    path = tmp_path / "headrace.db"
    leave_unclosed(path, "a", "b")
    catalog = Catalog(path)
    old = path.stat().st_ino
    catalog.create_topic("c", 1)
    new = path.stat().st_ino
    assert new != old
    catalog.create_topic("d", 1)
    catalog.close()
    catalog = Catalog(path)
    assert list(catalog.topics) == ["a", "b", "c", "d"]
    catalog.create_topic("e", 1)
    assert path.stat().st_ino == new  # it was closed
    catalog.close()


@pytest.mark.parametrize("step", range(4))
def test_new_files_are_completed_after_a_crash_at_any_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """A power cut may leave only the first part of SQLite's log, which must not be applied to the
    copy: it has earlier pages.
    """

    class Crash(BaseException):
        pass

    path = tmp_path / "headrace.db"
    leave_unclosed(path, *(f"topic-{number}" for number in range(60)))
    catalog = Catalog(path)
    expected = list(catalog.topics)
    steps = itertools.count()
    for name in ("unlink", "replace"):
        real = getattr(os, name)

        def act(*paths: str, real: Callable[..., None] = real) -> None:
            if os.path.exists(paths[0]) and next(steps) == step:
                raise Crash
            real(*paths)

        monkeypatch.setattr(os, name, act)
    with closing(sqlite3.connect(path)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM entries").fetchone()  # SQLite keeps its log for it
        with pytest.raises(Crash):
            catalog.create_topic("late", 1)
        monkeypatch.undo()
        crashed = tmp_path / "crashed"
        crashed.mkdir()
        for file in sorted(tmp_path.glob("headrace.db*")):
            shutil.copy(file, crashed / file.name)
    log = crashed / "headrace.db-wal"
    if (crashed / "headrace.db.new").exists() and log.exists():
        os.truncate(log, log.stat().st_size // 2)
    catalog = Catalog(crashed / path.name)
    assert list(catalog.topics) == expected
    catalog.create_topic("late", 1)
    catalog.close()


def test_pages_in_the_log_are_written_to_the_catalog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.topics.catalog.CATALOG_LOG_BYTES", 50_000)
    path = tmp_path / "headrace.db"
    catalog = Catalog(path)
    sizes = []
    for number in range(60):
        catalog.create_topic(f"topic-{number}", 1)
        sizes.append((tmp_path / "headrace.db-wal").stat().st_size)
    assert 50_000 < max(sizes) < 100_000
    assert min(sizes[30:]) < 20_000
    catalog.close()
