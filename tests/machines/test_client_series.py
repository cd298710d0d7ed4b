"""Metrics that clients push: read from OTLP, and kept as series."""

from __future__ import annotations

import asyncio
import random
from uuid import UUID

import pytest

from headrace.broker.catalog import Catalog
from headrace.broker.config.broker_config import Config
from headrace.broker.config.client_metrics import subscription
from headrace.broker.limits import (
    MAX_ALL_CLIENT_SERIES,
    MAX_CLIENT_SERIES,
    MAX_PUSHED_FIELDS,
    MAX_PUSHED_POINT_BYTES,
    MAX_PUSHED_POINTS,
)
from headrace.broker.metrics.text import MetricsPage
from headrace.broker.telemetry.client_instances import ClientInstance
from headrace.broker.telemetry.otlp import BadMetrics, Decoded, Point, decode
from headrace.broker.telemetry.series import ClientSeries
from headrace.broker.telemetry.service import Telemetry
from headrace.clock import Clock
from headrace.errors import ErrorCode
from headrace.protocol.compression import NONE
from headrace.time_slices import run_now
from tests.machines.otlp import CUMULATIVE, counter, field, gauge, histogram, point, pushed

PREFIX = "org.apache.kafka.producer."
ID = "AAAAAAAAAAAAAAAAAAAAZA"


def read(data: bytes) -> Decoded:
    return run_now(decode(memoryview(data)))


def instance(number: int = 100, client_id: str = "c") -> ClientInstance:
    return ClientInstance(
        UUID(int=number), {"client_id": client_id}, [subscription({"interval.ms": "100"})], 1
    )


def record(series: ClientSeries, data: bytes, of: ClientInstance, now_ms: int = 0) -> None:
    decoded = read(data)
    run_now(series.record(of, decoded.points, now_ms))


def lines(series: ClientSeries) -> list[str]:
    """Return the page of the series without its comments."""
    page = MetricsPage()
    asyncio.run(series.write(page))
    return [line for line in page.text().decode().splitlines() if not line.startswith("# HELP")]


# --- reading ---


def test_gauges_and_sums_are_read() -> None:
    data = pushed(
        gauge("g", point(1.5, topic="t", partition=3), point(-2, ok=True, ratio=0.5)),
        counter("delta", point(7)),
        counter("cumulative", point(8), temporality=CUMULATIVE),
        counter("up.and.down", point(9), monotonic=False),
        histogram("h"),
        resource={"client_rack": "r"},
    )
    assert read(data) == Decoded(
        [
            Point("g", False, False, 1.5, (("topic", "t"), ("partition", "3"))),
            Point("g", False, False, -2, (("ok", "true"), ("ratio", "0.5"))),
            Point("delta", True, True, 7, ()),
            Point("cumulative", True, False, 8, ()),
            Point("up.and.down", False, True, 9, ()),
        ],
        0,
    )
    assert read(b"") == Decoded([], 0)


def test_unknown_fields_are_skipped() -> None:
    unknown = field(99, 1) + field(99, 1.0) + field(99, "x") + b"\x9d\x06" + bytes(4)  # fixed32
    metric = unknown + gauge("g", unknown + point(1)) + unknown
    data = unknown + field(1, unknown + field(2, unknown + field(2, metric)))
    assert read(data).points == [Point("g", False, False, 1, ())]


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a",  # without a length
        b"\x0a\x05abc",  # shorter than its length
        b"\x08" + b"\xff" * 10,  # a number without an end
        b"\x08\xff",  # an incomplete number
        b"\x0b",  # a group
        b"\x08\x01",  # a number in place of a message
        pushed(field(1, b"\xff") + field(5, b"")),  # a name that is not UTF-8
        pushed(field(1, "g") + field(5, field(1, field(4, "x")))),  # a string for a double
        pushed(gauge("g", point(1, a="x" * MAX_PUSHED_POINT_BYTES))),
    ],
)
def test_invalid_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(BadMetrics):
        read(data)


def test_every_cut_and_every_flipped_byte_is_read_or_refused() -> None:
    data = pushed(gauge("g", point(1.5, topic="t")), counter("s", point(7)))
    rng = random.Random(1)
    cases = [data[:end] for end in range(len(data))]
    for _ in range(500):
        changed = bytearray(data)
        changed[rng.randrange(len(data))] = rng.randrange(256)
        cases.append(bytes(changed))
    for case in cases:
        try:
            read(case)
        except BadMetrics:
            pass


def test_a_push_has_a_largest_number_of_points() -> None:
    many = [point(1)] * (MAX_PUSHED_POINTS // 2 + 1)
    decoded = read(pushed(gauge("a", *many), gauge("b", *many)))
    assert (len(decoded.points), decoded.left_out) == (MAX_PUSHED_POINTS, 2)


def test_a_push_has_a_largest_number_of_fields() -> None:
    with pytest.raises(BadMetrics, match="more than"):
        read(field(1, field(2, field(2, b"") * MAX_PUSHED_FIELDS)))


def test_reading_pauses_often() -> None:
    """However the bytes are arranged, few are read between two pauses."""
    for data in (
        pushed(gauge("g", *[point(1)] * 1000)),
        field(9, 1) * 1000,
        pushed(field(9, 1) * 1000),
        pushed(field(5, field(9, 1) * 1000)),
    ):
        assert sum(1 for _ in decode(memoryview(data))) >= 1000


# --- series ---


def test_points_become_series_with_the_labels_of_the_client() -> None:
    series, client = ClientSeries(), instance(client_id='a"b')
    record(
        series,
        pushed(
            gauge(f"{PREFIX}queue-size", point(3, **{"topic-name": "t"})),
            counter(f"{PREFIX}sent", point(5)),
        ),
        client,
    )
    record(series, pushed(counter(f"{PREFIX}sent", point(2))), client)
    common = rf'client_id="a\"b",client_instance_id="{ID}"'
    assert lines(series) == [
        "# TYPE org_apache_kafka_producer_queue_size gauge",
        f'org_apache_kafka_producer_queue_size{{{common},topic_name="t"}} 3',
        "# TYPE org_apache_kafka_producer_sent counter",
        f"org_apache_kafka_producer_sent{{{common}}} 7",
    ]


def test_cumulative_values_replace_what_was_known() -> None:
    series, client = ClientSeries(), instance()
    for value in (5, 6):
        metric = counter(f"{PREFIX}sent", point(value), temporality=CUMULATIVE)
        record(series, pushed(metric), client)
    assert lines(series)[1].endswith(" 6")


def test_names_that_are_no_client_metric_are_left_out() -> None:
    series = ClientSeries()
    record(series, pushed(gauge("kafka_server_x", point(1)), gauge("", point(1))), instance())
    assert (lines(series), series.left_out) == ([], 2)


def test_a_metric_has_one_kind() -> None:
    series = ClientSeries()
    record(series, pushed(gauge(f"{PREFIX}x", point(1))), instance(1))
    record(series, pushed(counter(f"{PREFIX}x", point(2))), instance(2))
    assert len(lines(series)) == 2
    assert series.left_out == 1


def test_attributes_cannot_pose_as_the_client() -> None:
    series = ClientSeries()
    attributes = {"client.id": "evil", "client_instance_id": "evil", "1st": "x", "": "y"}
    record(series, pushed(gauge(f"{PREFIX}x", point(1, **attributes))), instance())
    assert lines(series)[1].split("{")[1] == (
        f'client_id="c",client_instance_id="{ID}",_1st="x"}} 1'
    )


def test_attributes_with_the_same_label_make_one_label() -> None:
    series = ClientSeries()
    record(series, pushed(gauge(f"{PREFIX}x", point(1, **{"a.b": "1", "a-b": "2"}))), instance())
    assert lines(series)[1].endswith(',a_b="2"} 1')


def test_series_with_large_labels_are_left_out() -> None:
    series = ClientSeries()
    for character, count in (("x", 4), ("\N{GRINNING FACE}", 1)):
        attributes = {f"a{number}": character * 300 for number in range(count)}
        record(series, pushed(gauge(f"{PREFIX}x", point(1, **attributes))), instance())
    assert (lines(series), series.left_out) == ([], 2)


def test_series_are_limited_for_a_client_and_for_all() -> None:
    series = ClientSeries()
    points = [point(1, number=number) for number in range(MAX_CLIENT_SERIES + 1)]
    clients = MAX_ALL_CLIENT_SERIES // MAX_CLIENT_SERIES
    for number in range(clients + 1):
        record(series, pushed(gauge(f"{PREFIX}x", *points)), instance(100 + number))
    assert len(lines(series)) == 1 + MAX_ALL_CLIENT_SERIES
    assert series.left_out == clients + MAX_CLIENT_SERIES + 1


def test_series_are_forgotten_with_their_client() -> None:
    series = ClientSeries()
    record(series, pushed(gauge(f"{PREFIX}x", point(1))), instance(1))
    record(series, pushed(gauge(f"{PREFIX}x", point(1))), instance(2), now_ms=30_000)
    series.expire(59_999)
    assert len(lines(series)) == 3
    series.expire(60_000)
    assert len(lines(series)) == 2
    series.expire(90_000)
    assert lines(series) == []
    record(series, pushed(counter(f"{PREFIX}x", point(1))), instance(1), now_ms=90_000)
    assert lines(series)[0].endswith("counter")


def test_a_push_has_its_own_result_even_if_its_instance_sends_another_request() -> None:
    telemetry = Telemetry(Config(), Catalog(), Clock(lambda: 0, lambda: 0))
    client = instance()
    steps = telemetry.export(client, NONE, memoryview(pushed(gauge("g", point(1.5)))))
    next(steps)
    client.last_error = ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert run_now(steps) == ErrorCode.NONE
    assert telemetry.exported == 1
