"""A check of the Python environment of executors, before anything of headrace is imported there.

Spark pickles a source on the driver's host, and unpickles it in the executors. There, without this
check, a missing or older package shows as a stack of Spark's own calls.
"""

from __future__ import annotations

import sys
from typing import Any

from pyspark import cloudpickle

MINIMUM_PYARROW = 18
"""The oldest major version that works; `pyproject.toml` asks for one without known advisories."""


class CheckedInExecutors:
    """An object that Spark sends to executors, where :func:`restore` checks their environment."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickled within the pickle, so that nothing of it is imported before the check.
        pickled = cloudpickle.dumps((type(self), self.__dict__))
        driver_version = sys.modules["headrace"].__version__
        return restore, (driver_version, MINIMUM_PYARROW, pickled)


def restore(driver_version: str, minimum_pyarrow: int, pickled: bytes) -> Any:
    """Check the Python environment of this process, prepare it, then unpickle an object.

    This function travels as code, so that it runs where headrace is missing.

    :param driver_version: headrace's version on the driver
    :raises ImportError: a package is missing, or too old; the text says which and where
    """
    import importlib
    import pickle
    import platform
    import sys

    here = f"{sys.executable} on {platform.node()}"
    remedy = (
        "let this Python have headrace[spark] on every host of the cluster, or ship an "
        "environment with --archives"
    )
    problem = None
    try:
        import pyarrow

        if int(pyarrow.__version__.partition(".")[0]) < minimum_pyarrow:
            problem = f"pyarrow {pyarrow.__version__} of {here} is older than {minimum_pyarrow}"
        else:
            importlib.import_module("headrace.spark")
            version = sys.modules["headrace"].__version__
            if version != driver_version:
                problem = f"headrace {version} of {here} is not the driver's, {driver_version}"
    except ImportError as error:
        problem = f"{here} has no headrace[spark] ({error})"
    if problem is not None:
        sys.tracebacklimit = 0  # Spark shows the last line only
        raise ImportError(f"{problem}: {remedy}") from None
    importlib.import_module("headrace.spark.python_worker").prepare()
    source_type, values = pickle.loads(pickled)
    source = source_type.__new__(source_type)
    source.__dict__.update(values)
    return source


cloudpickle.register_pickle_by_value(sys.modules[__name__])
