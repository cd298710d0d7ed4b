"""Typical mistakes end in one line that says what to change."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.spark.errors import SourceError
from headrace.spark.source_progress import check_offsets
from tests.spark.conftest import needs_available_now
from tests.spark.mistakes import FOREIGN_CHECKPOINT, MISTAKES, Scene, make, problem, run_stream

pytestmark = [pytest.mark.spark, pytest.mark.broker]


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    with Scene() as made:
        yield made


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(spark: SparkSession, scene: Scene, name: str, tmp_path: Path) -> None:
    with pytest.raises(Exception) as failed:
        make(spark, scene, MISTAKES[name], tmp_path)
    assert MISTAKES[name].text in problem(failed.value)


@needs_available_now
def test_the_checkpoint_of_another_query(spark: SparkSession, scene: Scene, tmp_path: Path) -> None:
    run_stream(spark, "kafka-lag", scene.options("kafka-lag"), tmp_path)
    for source, text in FOREIGN_CHECKPOINT.items():
        with pytest.raises(Exception) as failed:
            run_stream(spark, source, scene.options(source), tmp_path)
        assert text in problem(failed.value)


@pytest.mark.parametrize("offset", [None, 3, [], {}, {"batch": 1}, {"session": 1, "batch": 1}])
def test_offsets_that_are_not_of_the_source(offset: object) -> None:
    own = {"session": "a", "batch": 7, "records": 0, "spans": {"t": {"0": [0, 4]}}, "alone": []}
    check_offsets("kafka-share", own)
    with pytest.raises(SourceError, match="the checkpoint is one of another query"):
        check_offsets("kafka-share", own, offset)
