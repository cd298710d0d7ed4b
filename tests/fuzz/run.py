"""Fuzz a broker in this process: conversations by seed, until so many frames were sent."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import psutil

from headrace.handlers import APIS
from tests.fuzz.conversations import TALKS, Talk, noise
from tests.fuzz.frames import FrameWriter, mutated_frame
from tests.fuzz.ground import HONEST_TOPIC, Finding, Ground, Wire
from tests.fuzz.schema import served_versions, version_of
from tests.fuzz.words import Words

EPOCH_FRAMES = 20_000
"""Frames that one broker gets. Then its files are deleted and another one begins."""

RESTART_FRAMES = 5000
HONEST_FRAMES = 500
MAX_GROWTH_BYTES = 200 * 1024 * 1024
"""How much the resident memory of the process may grow after the first two brokers."""

_WAIT_MS = 10 * 60_000


@dataclass(slots=True)
class Report:
    """The result of a run.

    :ivar findings: by signature, the first finding and the stream of bytes that led to it
    """

    seed: int
    frames: int = 0
    conversations: int = 0
    answered: int = 0
    seconds: float = 0
    restarts: int = 0
    growth_bytes: int = 0
    versions: Counter[tuple[int, int]] = field(default_factory=Counter)
    findings: dict[str, tuple[Finding, bytes]] = field(default_factory=dict)
    times: Counter[str] = field(default_factory=Counter)

    def note(self, finding: Finding, stream: bytes) -> None:
        """Count a finding, and print it when it is new."""
        if finding.signature not in self.findings:
            print(f"found with seed {self.seed}: {finding}\nstream: {stream.hex()}", flush=True)
        self.findings.setdefault(finding.signature, (finding, stream))
        self.times[finding.signature] += 1

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: {self.frames:,} frames, {self.answered:,} answered, in "
            f"{self.conversations:,} connections and {self.seconds:.0f} s; "
            f"{len(self.versions)} versions of {len({key for key, _ in self.versions})} APIs, "
            f"{self.restarts} restarts, memory +{self.growth_bytes / 1e6:.0f} MB, "
            f"{len(self.findings)} findings"
        )


class Fuzzer:
    """Sends conversations to one broker."""

    def __init__(self, rng: random.Random, ground: Ground, report: Report) -> None:
        self.rng, self.ground, self.report = rng, ground, report
        self.words = Words(rng)
        self.writer = FrameWriter(self.words)
        topics = ground.broker.catalog.topics
        self.words.forbidden = frozenset((topics[HONEST_TOPIC].topic_id,))
        for topic in topics.values():
            if topic.name in ("t0", "t1", "compacted"):
                self.words.tell("topic_id", topic.topic_id)

    def _talk(self) -> Talk:
        rng = self.rng
        if rng.random() < 0.5:
            return rng.choice(TALKS)(self.words)
        return noise(self.words, rng.sample(sorted(APIS), rng.choice((1, 3, 50))))

    def converse(self) -> None:
        """Hold one conversation and check it."""
        rng, report = self.rng, self.report
        wire = Wire(self.ground)
        report.conversations += 1
        try:
            self._speak(wire)
            for _, response in self.ground.check(wire, _WAIT_MS if rng.random() < 0.02 else 0):
                report.answered += 1
                if response is not None:
                    self.words.learn(response)
        except Finding as finding:
            report.note(finding, bytes(wire.sent))
        finally:
            wire.cut()
        try:
            self.ground.loop.advance(rng.choice((0, 0, 0, 1, 100, 10_000)))
            self.ground.check_log()
        except Finding as finding:
            report.note(finding, bytes(wire.sent))

    def _speak(self, wire: Wire) -> None:
        rng, talk = self.rng, self._talk()
        flaws = rng.choice((0.0, 0.0, 0.005, 0.02, 0.1))
        mutates = rng.choice((0.0, 0.0, 0.1, 0.5))
        is_pipelined = rng.random() < 0.3
        pending = bytearray()
        correlation_id = rng.choice((0, 1, -5, (1 << 31) - 100))
        if rng.random() < 0.3:
            pending += self._frame(18, correlation_id, {}, flaws)
        answer = None
        while wire.is_open:
            try:
                api_key, given = talk.send(answer)
            except StopIteration:
                break
            correlation_id += 1
            frame = self._frame(api_key, correlation_id, given, flaws)
            if rng.random() < mutates:
                frame = mutated_frame(rng, frame)
            pending += frame
            answer = None
            if not is_pipelined:
                self._deliver(wire, pending)
                self.ground.loop.settle()
                pairs = self.ground.check(wire)
                if pairs and pairs[-1][0].correlation_id == correlation_id:
                    answer = pairs[-1][1]
                    if answer is not None:
                        self.words.learn(answer)
        if pending and rng.random() < 0.1:
            del pending[rng.randrange(len(pending)) :]
        self._deliver(wire, pending)

    def _frame(self, api_key: int, correlation_id: int, given: dict, flaws: float) -> bytes:
        rng, api = self.rng, APIS[api_key]
        api_version = rng.choice((api.highest, rng.randint(api.lowest, api.highest)))
        self.report.versions[api_key, api_version] += 1
        self.report.frames += 1
        version = version_of(api_key, api_version)
        return self.writer.frame(version, correlation_id, given, flaws)

    def _deliver(self, wire: Wire, data: bytearray) -> None:
        """Send and empty ``data``, sometimes in pieces."""
        rng = self.rng
        while data and wire.is_open:
            size = len(data) if rng.random() < 0.9 else rng.randrange(1, len(data) + 1)
            wire.send(bytes(data[:size]))
            del data[:size]
            if rng.random() < 0.3:
                self.ground.loop.settle()
        data.clear()


def every_version(ground: Ground, report: Report, rng: random.Random) -> None:
    """Send each served version once, sound and on a connection of its own."""
    fuzzer = Fuzzer(rng, ground, report)
    for version in served_versions():
        wire = Wire(ground)
        report.frames += 1
        report.versions[version.api_key, version.api_version] += 1
        try:
            wire.send(fuzzer.writer.frame(version, 1))
            report.answered += len(ground.check(wire))
        except Finding as finding:
            report.note(finding, bytes(wire.sent))
        finally:
            wire.cut()


def run(
    seed: int,
    frames: int,
    tell: Callable[[Report], None] | None = None,
    seconds: float | None = None,
) -> Report:
    """Send at least so many frames, or for so many seconds, and return what was found.

    :param tell: is called now and then
    """
    report, rng = Report(seed), random.Random(seed)
    started = told = time.monotonic()
    process = psutil.Process()
    memory: list[int] = []

    def is_over() -> bool:
        report.seconds = time.monotonic() - started
        return report.frames >= frames or (seconds is not None and report.seconds >= seconds)

    while not is_over():
        with Ground(rng.getrandbits(32)) as ground:
            begun = report.frames
            every_version(ground, report, rng)
            fuzzer = Fuzzer(rng, ground, report)
            restart_at = report.frames + RESTART_FRAMES
            honest_at = report.frames
            while report.frames - begun < EPOCH_FRAMES and not is_over():
                fuzzer.converse()
                if report.frames >= honest_at:
                    honest_at = report.frames + HONEST_FRAMES
                    _note(report, ground.produce_honestly)
                if report.frames >= restart_at:
                    restart_at = report.frames + RESTART_FRAMES
                    report.restarts += 1
                    _note(report, ground.check_restart)
                if tell is not None and time.monotonic() - told > 10:
                    told = time.monotonic()
                    tell(report)
            _note(report, ground.check_honest_data)
            report.restarts += 1
            _note(report, ground.check_restart)
        memory.append(process.memory_info().rss)
        if len(memory) > 2:
            report.growth_bytes = memory[-1] - memory[1]
    if report.growth_bytes > MAX_GROWTH_BYTES:
        report.note(Finding("memory grows", f"by {report.growth_bytes} bytes"), b"")
    report.seconds = time.monotonic() - started
    return report


def _note(report: Report, check: Callable[[], None]) -> None:
    try:
        check()
    except Finding as finding:
        report.note(finding, b"")
