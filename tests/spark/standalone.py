"""A standalone cluster of Spark on this machine: a master, workers, and applications."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import tarfile
import venv
from collections.abc import Mapping
from pathlib import Path

import psutil
import pyspark

from tests.spark.application import kill_session
from tests.support import ROOT, SHORT_LIVED_SPARK, wait_until

SPARK_HOME = Path(pyspark.__file__).parent
DEFAULTS = {
    "spark.cores.max": "4",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": SHORT_LIVED_SPARK,
    "spark.executor.memory": "512m",
    "spark.executor.cores": "2",
    "spark.executor.extraJavaOptions": SHORT_LIVED_SPARK,
    "spark.sql.shuffle.partitions": "1",
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
}
"""Settings of all applications of a cluster."""

_START_TIMEOUT_S = 120


class Daemon:
    """A master or a worker.

    Its session holds everything that it starts: a worker's executors and their Python processes.

    :param log: the file with its lines
    :param host: an address of this machine
    """

    def __init__(
        self, log: Path, class_name: str, *arguments: str, host: str = "127.0.0.1"
    ) -> None:
        self.log = log
        with log.open("w") as output:
            self.process = subprocess.Popen(
                [str(SPARK_HOME / "bin/spark-class"), f"org.apache.spark.deploy.{class_name}"]
                + ["--host", host, "--port", "0", "--webui-port", "0", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={
                    **_without_python(os.environ),
                    "SPARK_DAEMON_JAVA_OPTS": SHORT_LIVED_SPARK,
                    "SPARK_DAEMON_MEMORY": "256m",
                },
            )

    def find(self, pattern: str) -> str:
        """Wait for a line with a pattern; return the text of its group."""

        def search() -> re.Match[str] | None:
            assert self.process.poll() is None, self.log.read_text()
            return re.search(pattern, self.log.read_text())

        found = wait_until(search, _START_TIMEOUT_S, f"'{pattern}' in {self.log}")
        assert found is not None
        return found[1]

    def executors(self) -> list[psutil.Process]:
        """Return the JVMs of the executors that run in a worker."""
        children = psutil.Process(self.process.pid).children()
        return [child for child in children if "ExecutorBackend" in " ".join(_command(child))]

    def kill(self) -> None:
        """Kill the worker alone with SIGKILL: its executors notice that themselves."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


class StandaloneCluster:
    """A master and workers; each worker has the cores and the memory for two executors, and an
    address of its own: Spark starts no second attempt of a task on the same host.

    :param folder: for logs, the work of executors, and the settings of applications
    :ivar url: the master's address, such as ``spark://127.0.0.1:7077``
    """

    def __init__(self, folder: Path, workers: int = 2) -> None:
        self._folder = folder
        self._daemons: list[Daemon] = []
        self._applications: list[subprocess.Popen[str]] = []
        self._worker_count = workers
        self.url = ""

    @property
    def workers(self) -> list[Daemon]:
        """The workers that run."""
        return [daemon for daemon in self._daemons[1:] if daemon.process.poll() is None]

    def start(self) -> StandaloneCluster:
        """Start the master and the workers, and wait until they have registered."""
        settings = self._folder / "conf"
        settings.mkdir(parents=True)
        lines = (f"{name} {value}" for name, value in DEFAULTS.items())
        (settings / "spark-defaults.conf").write_text("\n".join(lines))
        master = Daemon(self._folder / "master.log", "master.Master")
        self._daemons.append(master)
        self.url = master.find(r"Starting Spark master at (spark://\S+)")
        for worker in [self.add_worker() for _ in range(self._worker_count)]:
            worker.find(r"(Successfully registered with master)")
        return self

    def add_worker(self) -> Daemon:
        """Start a worker, and do not wait for it."""
        name = f"worker-{len(self._daemons)}"
        resources = ["--cores", "4", "--memory", "1g", "--work-dir", str(self._folder / name)]
        worker = Daemon(
            self._folder / f"{name}.log",
            "worker.Worker",
            *resources,
            self.url,
            host=f"127.0.0.{len(self._daemons) + 1}",
        )
        self._daemons.append(worker)
        return worker

    def submit(self, command: str, folder: Path, log: Path) -> subprocess.Popen[str]:
        """Run a command of ``spark-submit`` in a folder, with variables before it.

        :param log: the file with the lines of the driver
        """
        environment = {
            **_without_python(os.environ),
            "PATH": os.pathsep.join([str(SPARK_HOME / "bin"), os.environ["PATH"]]),
            "SPARK_CONF_DIR": str(self._folder / "conf"),
            "SPARK_HOME": str(SPARK_HOME),
        }
        with log.open("a") as output:
            driver = subprocess.Popen(
                ["env", *shlex.split(command.replace("\\\n", " "))],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
                cwd=folder,
                env=environment,
            )
        self._applications.append(driver)
        return driver

    def __enter__(self) -> StandaloneCluster:
        try:
            return self.start()
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        for process in [*self._applications, *(daemon.process for daemon in self._daemons)]:
            kill_session(process)


def _without_python(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment that does not say which Python to use: the command has to."""
    removed = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYTHONPATH")
    return {name: value for name, value in environment.items() if name not in removed}


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []


def pack_environment(folder: Path) -> None:
    """Make a virtual environment with headrace, `environment.tar.gz`, and unpack it beside.

    The packages that headrace needs are those of the Python that runs the tests: the archive only
    refers to them, so that it is small.
    """
    environment = folder / "environment"
    venv.EnvBuilder(symlinks=True, with_pip=False).create(environment)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = environment / "lib" / version / "site-packages"
    for source in (ROOT / "src").iterdir():
        if source.is_dir():
            shutil.copytree(
                source, packages / source.name, ignore=shutil.ignore_patterns("__pycache__")
            )
    others = sysconfig.get_path("purelib")
    (packages / "others.pth").write_text(f"import site; site.addsitedir({others!r})\n")
    with tarfile.open(folder / "environment.tar.gz", "w:gz", compresslevel=1) as archive:
        archive.add(environment, ".")
