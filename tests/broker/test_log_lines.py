"""Values of log lines: escaped, cut, and never bytes."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from headrace.log_lines import (
    MAX_LIMITED_PEERS,
    MAX_MESSAGE_CHARS,
    MAX_TRACEBACK_CAUSES,
    MAX_VALUE_CHARS,
    LimitedLog,
    Limiter,
    get_logger,
    make_safe,
    shown,
)
from tests.support import ROOT


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain name-1.2_3", "plain name-1.2_3"),
        ("größe 日本 ✓", "größe 日本 ✓"),
        ("two\nlines\r", "two\\nlines\\r"),
        ("\x1b[31mred\x7f\x9b", "\\x1b[31mred\\x7f\\x9b"),
        ("a\u2028b\u202ec\u200b", "a\\u2028b\\u202ec\\u200b"),
        ("\ud800", "\\ud800"),
        ("\U000e0041", "\\U000e0041"),
        ("back\\slash", "back\\slash"),
        (b"secret", "<6 bytes>"),
        (memoryview(b"secret"), "<6 bytes>"),
        (bytearray(3), "<3 bytes>"),
        (ValueError("bad\nvalue b'\\x00secret'"), "bad\\nvalue <bytes>"),
        (KeyError(b"it's"), "<bytes>"),
        ("['b', \"b\", sub'x]", "['b', \"b\", sub'x]"),
        ("Records(b'never closed", "Records(<bytes>"),
        ("Records(b'never closed\\", "Records(<bytes>"),
        (None, "None"),
    ],
)
def test_a_value_is_shown_without_control_characters_and_bytes(value: object, text: str) -> None:
    assert shown(value) == text
    assert shown(text) == text


def test_a_long_value_is_cut() -> None:
    assert shown("x" * MAX_VALUE_CHARS) == "x" * MAX_VALUE_CHARS
    assert shown("x" * (MAX_VALUE_CHARS + 7)) == "x" * MAX_VALUE_CHARS + "... and 7 more characters"
    assert len(shown("\x00" * 32_767)) < 4 * MAX_VALUE_CHARS + 50


def test_a_value_whose_text_fails_is_shown_by_its_type() -> None:
    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    assert shown(Broken()) == "<Broken without text: RuntimeError>"


class Lines(logging.Handler):
    """A handler that keeps the lines it gets."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines += self.format(record).split("\n")


@pytest.fixture
def written() -> Iterator[Lines]:
    """The lines of the logger "headrace.under_test"."""
    logger, handler = get_logger("headrace.under_test"), Lines()
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


LOG = get_logger("headrace.under_test")


def test_values_and_messages_of_a_line_are_safe(written: Lines) -> None:
    LOG.warning("%s and %d and %.1f and %r", "a\nb", 3, 1.5, b"secret")
    LOG.warning("%(name)s", {"name": "a\nb"})
    LOG.warning("made\nbefore: 100%")
    LOG.warning("x" * 100_000)
    *short, long = written.lines
    assert short == [
        "a\\nb and 3 and 1.5 and '<6 bytes>'",
        "a\\nb",
        "made\\nbefore: 100%",
    ]
    assert len(long) < MAX_MESSAGE_CHARS + 50


def test_a_logger_has_one_filter_and_escapes_once(written: Lines) -> None:
    assert get_logger("headrace.under_test").filters == [make_safe]
    written.addFilter(make_safe)
    LOG.warning("%s", "x" * (MAX_VALUE_CHARS + 1))
    assert written.lines == ["x" * MAX_VALUE_CHARS + "... and 1 more characters"]


def test_a_traceback_keeps_its_lines_and_escapes_the_texts_of_errors(written: Lines) -> None:
    try:
        try:
            raise KeyError("forged\n2026 INFO line")
        except KeyError as error:
            raise ValueError("b'secret' \x1b[2J\nforged") from error
    except ValueError:
        LOG.exception("it failed")
    assert written.lines[0] == "it failed"
    assert written.lines.count("Traceback (most recent call last):") == 2
    assert "KeyError: 'forged\\n2026 INFO line'" in written.lines
    assert written.lines[-1] == "ValueError: <bytes> \\x1b[2J\\nforged"


def test_a_long_or_circular_chain_of_errors_is_cut(written: Lines) -> None:
    errors = [ValueError(str(i)) for i in range(50)]
    for error, cause in zip(errors, errors[1:] + errors[:1], strict=True):
        error.__cause__ = cause
    LOG.error("failed", exc_info=errors[0])
    assert written.lines.count("Traceback (most recent call last):") == MAX_TRACEBACK_CAUSES
    errors[0].__cause__ = errors[1]
    errors[1].__cause__ = errors[0]
    LOG.error("failed", exc_info=errors[0])
    assert written.lines[-1] == "ValueError: 0"


def test_one_line_per_kind_and_peer_in_an_interval(written: Lines) -> None:
    log = LimitedLog(LOG.name, Limiter())
    for i in range(5):
        log.warning("/1", "closing %s: %d", "/1", i)
        log.warning("/2", "closing %s: %d", "/2", i)
        log.info("/1", "unseen: the level is WARNING")
        log.error("/1", "failed: %d", i)
    assert written.lines == ["closing /1: 0", "closing /2: 0", "failed: 0"]


def test_some_lines_per_kind_and_peer_in_an_interval(written: Lines) -> None:
    limiter = Limiter()
    log = LimitedLog(LOG.name, limiter, limit=3)
    for number in range(5):
        log.warning("task", "failed: %d", number)
    limiter.report()
    assert written.lines == [
        "failed: 0",
        "failed: 1",
        "failed: 2",
        "2 more lines because of task are left out: failed: ...",
    ]


def test_lines_that_were_left_out_are_counted_with_the_next_one_of_any_kind(
    written: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    limiter = Limiter()
    log = LimitedLog(LOG.name, limiter)
    for _ in range(1000):
        log.warning("/1", "closing %s", "/1")
    monkeypatch.setattr("headrace.log_lines.LIMITED_LINE_INTERVAL_S", 0)
    log.warning("/2", "refusing %s", "/2")
    assert written.lines == [
        "closing /1",
        "999 more lines because of /1 are left out: closing ...",
        "refusing /2",
    ]
    assert len(limiter) == 1


def test_lines_that_were_left_out_are_counted_with_the_next_one(
    written: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.log_lines.LIMITED_LINE_INTERVAL_S", 3600)
    log = LimitedLog(LOG.name, Limiter())
    for _ in range(4):
        log.warning("/1", "closing %s", "/1")
    monkeypatch.setattr("headrace.log_lines.LIMITED_LINE_INTERVAL_S", 0)
    log.warning("/1", "closing %s", "/1")
    assert written.lines == ["closing /1", "closing /1 (3 more like this are left out)"]


def test_a_report_says_what_is_left_out_at_the_end(written: Lines) -> None:
    limiter = Limiter()
    log = LimitedLog(LOG.name, limiter)
    for _ in range(4):
        log.warning("/1", "closing %s", "/1")
    limiter.report()
    limiter.report()
    for _ in range(2):
        log.warning("", "closing everything")
    limiter.report()
    assert written.lines[1:] == [
        "3 more lines because of /1 are left out: closing ...",
        "closing everything",
        "1 more lines are left out: closing everything",
    ]


def test_many_peers_share_one_entry(written: Lines) -> None:
    limiter = Limiter()
    log = LimitedLog(LOG.name, limiter)
    for i in range(1000):
        log.warning(f"/{i}", "closing %d", i)
        log.warning(f"/{i}", "refusing %d", i)
    assert len(limiter) <= MAX_LIMITED_PEERS + 2
    assert len(written.lines) <= 2 * (MAX_LIMITED_PEERS + 2)


def test_places_of_old_peers_are_taken_by_new_ones_without_losing_counts(
    written: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = LimitedLog(LOG.name, Limiter())
    for i in range(MAX_LIMITED_PEERS):
        log.warning(f"/{i}", "closing")
        log.warning(f"/{i}", "closing")
    monkeypatch.setattr("headrace.log_lines.LIMITED_LINE_INTERVAL_S", 0)
    log.warning("/new", "closing")
    assert written.lines[MAX_LIMITED_PEERS:] == [
        *(f"1 more lines because of /{i} are left out: closing" for i in range(MAX_LIMITED_PEERS)),
        "closing",
    ]


@pytest.mark.parametrize("room", ["broker", "coordinators", "handlers", "log"])
def test_the_broker_has_only_loggers_of_safe_lines(room: str) -> None:
    source = ROOT / "src" / "headrace" / room
    assert [path for path in source.rglob("*.py") if "logging.getLogger" in path.read_text()] == []
