"""An executor whose Python lacks something says so in one line."""

from __future__ import annotations

import subprocess
import sys

import pytest
from pyspark import cloudpickle

from headrace.spark import GroupHistorySource, LagDataSource, OrderedDataSource, ShareDataSource
from tests.spark.application import python_environment

WITHOUT_HEADRACE = """
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "headrace":
            raise ModuleNotFoundError("No module named 'headrace'")
sys.meta_path.insert(0, Finder())
"""
OLDER_PYARROW = "import pyarrow; pyarrow.__version__ = '17.0.0'"
OTHER_HEADRACE = "import headrace; headrace.__version__ = '0.0.1'"
EXECUTOR = """
import sys
from pyspark import cloudpickle
pickled = sys.stdin.buffer.read()
{environment}
assert type(cloudpickle.loads(pickled)).name() == "kafka-share"
"""


def unpickle(pickled: bytes, environment: str) -> str:
    """Unpickle a source in a Python with some code before; return what it says."""
    done = subprocess.run(
        [sys.executable, "-c", EXECUTOR.format(environment=environment)],
        input=pickled,
        capture_output=True,
        env=python_environment(),
        check=False,
    )
    return done.stderr.decode()


@pytest.mark.parametrize(
    ("environment", "problem"),
    [
        (WITHOUT_HEADRACE, "has no headrace[spark] (No module named 'headrace'): let this Python"),
        (OLDER_PYARROW, "is older than 18: let this Python have headrace[spark]"),
        (OTHER_HEADRACE, "is not the driver's, 0.1.0: let this Python"),
    ],
)
def test_one_line(environment: str, problem: str) -> None:
    pickled = cloudpickle.dumps(ShareDataSource({"subscribe": "flights"}))
    said = unpickle(pickled, environment)
    assert problem in said
    assert said.startswith("ImportError: ")
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    "source", [ShareDataSource, OrderedDataSource, LagDataSource, GroupHistorySource]
)
def test_a_source_travels_with_its_options(source: type) -> None:
    travelled = cloudpickle.loads(cloudpickle.dumps(source({"subscribe": "flights"})))
    assert type(travelled) is source
    assert travelled.options == {"subscribe": "flights"}
