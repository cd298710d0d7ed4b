"""Code of pages that no reader follows, with the reason."""

from __future__ import annotations

from collections.abc import Mapping

INSTALLING = ("pip install", "python3 -m venv", ". .venv/")
"""Commands that install packages: the tests have them installed already."""

_SPARK_HOME = "tests/spark/connect.py starts the same server, in the foreground"
_PIPELINE = "tests/spark/test_connect.py runs this pipeline, on a Connect server"
_PACKED = "it installs from an index; tests/spark/test_cluster.py packs an environment of its own"
_DEMO = "tests/examples/test_departures.py runs this pipeline"

NOT_FOLLOWED: Mapping[str, Mapping[str, str]] = {
    "CONTRIBUTING.md": {
        ".venv/bin/pre-commit install": "it changes the clone",
        "git config blame.ignoreRevsFile": "it changes the clone",
        "API = Api(12": "it is handlers/api_12_heartbeat.py, abridged",
    },
    "README.md": {
        "make demo": _DEMO,
        "make test": "it runs these tests",
    },
    "docs/command-line.md": {
        "headrace lag history": (
            "each starts a Spark of its own: tests/spark/test_history.py runs the command"
        ),
    },
    "docs/dead-letters.md": {
        "headrace acls add 'User:*' --deny": (
            "it needs an authorizer: tests/security/test_dead_letter_queues.py has one"
        ),
    },
    "docs/how-to/worker.md": {
        "headrace worker shop:app -": "it works until it is stopped: tests/worker/test_command.py",
    },
    "docs/spark/running.md": {
        "PYSPARK_PYTHON=./environment/bin/python spark-submit": (
            "it needs a cluster: tests/spark/test_cluster.py submits with this command"
        ),
        "python -m venv environment": _PACKED,
        "tar -czf environment.tar.gz": _PACKED,
        "PYSPARK_PYTHON=/opt/environment/bin/python $SPARK_HOME": _SPARK_HOME,
        "from pyspark.sql import SparkSession\nfrom headrace.spark import acknowledge, drain": (
            "it needs a Connect server: tests/spark/test_connect.py runs it with one"
        ),
        "cd examples/pipeline": _PIPELINE,
        "spark-pipelines run": _PIPELINE,
    },
    "examples/README.md": {
        "make demo": _DEMO,
        ".venv/bin/python -m examples.departures": _DEMO,
        "cd examples/pipeline && spark-pipelines run": _PIPELINE,
    },
}
"""Page → start of a command, or of a block of Python → the reason."""


def reason(page: str, code: str) -> str | None:
    """Return why code of a page is not followed, None if it is.

    :param code: a command, or a block of Python
    """
    starts = NOT_FOLLOWED.get(page, {})
    return next((why for start, why in starts.items() if code.startswith(start)), None)
