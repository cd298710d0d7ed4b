"""The options of ``format("kafka-share")``: what a user may say, checked before anything is opened."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches

from headrace.client import AcknowledgeType
from headrace.client.cluster import parse_bootstrap

OUTCOMES = {
    "accept": AcknowledgeType.ACCEPT,
    "release": AcknowledgeType.RELEASE,
    "reject": AcknowledgeType.REJECT,
}
"""What may become of a record, by the word that stands for it in options and in the column ``outcome``."""

DEFAULT_RECORDS_PER_TASK = 10_000

_OPTIONS = {
    "subscribe": "subscribe",
    "outcome.default": "outcome.default",
    "maxrecordspertrigger": "maxRecordsPerTrigger",
    "recordspertask": "recordsPerTask",
    "includeheaders": "includeHeaders",
    "auto.offset.reset": "auto.offset.reset",
    "kafka.bootstrap.servers": "kafka.bootstrap.servers",
    "kafka.group.id": "kafka.group.id",
}
# What Spark itself hands to every source and sink.
_SPARKS_OWN = {"path", "checkpointlocation", "queryname", "outputmode"}
# librdkafka settings that would break the reading of exactly the acquired offsets.
_NOT_PASSED_ON = {"enable.auto.commit", "enable.auto.offset.store", "auto.offset.reset", "enable.partition.eof"}


class ShareSourceError(Exception):
    """A ``kafka-share`` query cannot go on as it was asked for; the text says what to change."""


def one_line(error: Exception) -> ShareSourceError:
    """The error to raise in a Spark worker process, so that the user sees its text without the worker's stack."""
    sys.tracebacklimit = 0  # the process ends with this error: Spark reports traceback.format_exc()
    return ShareSourceError(str(error))


@dataclass(frozen=True, slots=True)
class ShareOptions:
    """Checked options of one source or sink. Plain values: they travel to the executors.

    :param librdkafka: settings for the executors' consumers (``kafka.*`` without the prefix)
    :param max_records_per_trigger: None leaves the size of a micro-batch to the broker's limits on locks
    :param auto_offset_reset: what to set ``share.auto.offset.reset`` of the group to; None leaves it as it is
    """

    bootstrap_servers: str
    group_id: str
    topics: tuple[str, ...] = ()
    default_outcome: AcknowledgeType = AcknowledgeType.ACCEPT
    max_records_per_trigger: int | None = None
    records_per_task: int = DEFAULT_RECORDS_PER_TASK
    include_headers: bool = False
    auto_offset_reset: str | None = None
    librdkafka: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, options: Mapping[str, str], *, source: bool) -> ShareOptions:
        """Read what the user gave. A sink takes a source's options too, so that one dict serves both.

        :raises ShareSourceError: something is missing, unknown, or has a value that makes no sense
        """
        given = {name.lower(): str(value) for name, value in options.items()}
        _check_names(given)
        bootstrap_servers = _required(given, "kafka.bootstrap.servers", "HOST:PORT of the cluster")
        try:
            parse_bootstrap(bootstrap_servers)
        except ValueError as error:
            raise ShareSourceError(f"option kafka.bootstrap.servers: {error}") from None
        topics = tuple(name.strip() for name in given.get("subscribe", "").split(",") if name.strip())
        if source and not topics:
            raise ShareSourceError("set the option subscribe: the topics to drain, separated by commas")
        reset = given.get("auto.offset.reset")
        if reset is not None and reset not in ("earliest", "latest") and not reset.startswith("by_duration:"):
            raise ShareSourceError(f"option auto.offset.reset is '{reset}': say earliest, latest or by_duration:PT1H")
        return cls(
            bootstrap_servers=bootstrap_servers,
            group_id=_required(given, "kafka.group.id", "the share group to work in"),
            topics=topics,
            default_outcome=_outcome(given.get("outcome.default", "accept")),
            max_records_per_trigger=_count(given, "maxrecordspertrigger"),
            records_per_task=_count(given, "recordspertask") or DEFAULT_RECORDS_PER_TASK,
            include_headers=_truth(given, "includeheaders"),
            auto_offset_reset=reset,
            librdkafka=_librdkafka(given),
        )


def _check_names(given: Mapping[str, str]) -> None:
    for name in given:
        if name in _OPTIONS or name in _SPARKS_OWN or name.startswith("kafka."):
            continue
        near = get_close_matches(name, _OPTIONS, n=1)
        hint = f"did you mean {_OPTIONS[near[0]]}?" if near else f"known are {', '.join(sorted(_OPTIONS.values()))}"
        raise ShareSourceError(f"unknown option '{name}': {hint}")


def _librdkafka(given: Mapping[str, str]) -> dict[str, str]:
    settings = {name.removeprefix("kafka."): value for name, value in given.items() if name.startswith("kafka.")}
    del settings["bootstrap.servers"], settings["group.id"]
    for name in _NOT_PASSED_ON & settings.keys():
        raise ShareSourceError(f"remove the option kafka.{name}: a share group keeps track of what was delivered")
    protocol = settings.get("security.protocol", "plaintext")
    if protocol.lower() != "plaintext":
        raise ShareSourceError(f"option kafka.security.protocol is '{protocol}': kafka-share speaks plaintext only")
    return settings


def _required(given: Mapping[str, str], name: str, meaning: str) -> str:
    value = given.get(name, "").strip()
    if not value:
        raise ShareSourceError(f"set the option {name}: {meaning}")
    return value


def _outcome(value: str) -> AcknowledgeType:
    if value not in OUTCOMES:
        raise ShareSourceError(f"option outcome.default is '{value}': say {', '.join(OUTCOMES)}")
    return OUTCOMES[value]


def _count(given: Mapping[str, str], name: str) -> int | None:
    value = given.get(name)
    if value is None:
        return None
    if not value.isdigit() or int(value) < 1:
        raise ShareSourceError(f"option {_OPTIONS[name]} is '{value}': say a whole number from 1")
    return int(value)


def _truth(given: Mapping[str, str], name: str) -> bool:
    value = given.get(name, "false").lower()
    if value not in ("true", "false"):
        raise ShareSourceError(f"option {_OPTIONS[name]} is '{value}': say true or false")
    return value == "true"
