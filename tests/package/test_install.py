"""The package as people install it: an sdist, a wheel made of it, and a new environment."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

from tests.pages.reader import blocks
from tests.support import ROOT

from .smoke import CODECS

pytestmark = [pytest.mark.broker, pytest.mark.slow]

VERSIONS = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text())["jobs"]["test"][
    "strategy"
]["matrix"]["python"]
"""The versions of Python that continuous integration has."""

OURS = f"{sys.version_info.major}.{sys.version_info.minor}"

CORE = {
    "confluent-kafka",
    "cramjam",
    "crc32c",
    "google-re2",
    "headrace",
    "lz4",
    "markdown-it-py",  # rich's
    "mdurl",  # rich's
    "msgspec",
    "pygments",  # rich's
    "rich",
    "uvloop",
}
"""All that ``pip install headrace`` installs. Before Python 3.14 there is backports-zstd, too."""

MAX_INSTALLED_BYTES = 65 * 1024 * 1024
"""The size of all of it, without pip and without what Python compiles."""


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command that sees nothing of this environment or of the sources."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("PYTHON")
    }
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=240
    )


def succeed(*command: str | Path, cwd: Path) -> str:
    """Run a command, and return what it prints."""
    done = run(*command, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def find_python(version: str) -> str | None:
    """Return a Python of a version, on the path or in pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    for candidate in (f"python{version}", *pyenv.glob(f"{version}.*/bin/python")):
        if shutil.which(candidate) is None:
            continue
        code = "import ensurepip, sys; print('%d.%d' % sys.version_info[:2])"
        if run(candidate, "-c", code, cwd=ROOT).stdout.strip() == version:
            return str(candidate)
    return None


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that is built from the sdist, as an index of packages would build it."""
    folder = tmp_path_factory.mktemp("dist")
    succeed(sys.executable, "-m", "venv", folder / "builder", cwd=folder)
    python = folder / "builder/bin/python"
    succeed(python, "-m", "pip", "install", "--quiet", "build", cwd=folder)
    succeed(python, "-m", "build", "--outdir", folder / "dist", ROOT, cwd=folder)
    (built,) = (folder / "dist").glob("*.whl")
    assert len(list((folder / "dist").glob("*.tar.gz"))) == 1
    return built


def test_the_wheel_has_all_files_of_the_packages_and_says_what_it_is(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        files = {name for name in archive.namelist() if ".dist-info/" not in name}
        (name,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        metadata = archive.read(name).decode()
    tracked = succeed("git", "ls-files", "src", cwd=ROOT) if (ROOT / ".git").exists() else ""
    sources = {line.removeprefix("src/") for line in tracked.splitlines()}
    assert sources <= files, sources - files
    assert "headrace/py.typed" in files
    classifiers = re.findall(r"Classifier: Programming Language :: Python :: (3\.\d+)", metadata)
    assert classifiers == VERSIONS[: len(classifiers)]


@pytest.fixture(scope="module", params=VERSIONS)
def environment(
    request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """An environment with headrace and nothing else, of each version of Python that is here."""
    version: str = request.param
    python = sys.executable if version == OURS else find_python(version)
    if python is None:
        pytest.skip(f"Python {version} is not here, neither on the path nor in pyenv")
    folder = tmp_path_factory.mktemp(f"python{version}")
    succeed(python, "-m", "venv", folder, cwd=folder)
    install = ("-m", "pip", "install", "--quiet", "--no-compile", "-c", ROOT / "constraints.txt")
    succeed(folder / "bin/python", *install, wheel, cwd=folder)
    return folder


def test_a_plain_installation_is_small_and_works(environment: Path, tmp_path: Path) -> None:
    python = environment / "bin/python"
    listed = json.loads(succeed(python, "-m", "pip", "list", "--format=json", cwd=tmp_path))
    names = {package["name"].lower().replace("_", "-").replace(".", "-") for package in listed}
    assert names - {"pip", "setuptools", "backports-zstd"} == CORE
    (site,) = environment.glob("lib/python*/site-packages")
    foreign = ("pip", "setuptools", "pkg_resources", "_distutils_hack")
    size_bytes = sum(
        path.stat().st_size
        for path in site.rglob("*")
        if path.is_file()
        and path.relative_to(site).parts[0].split("-")[0] not in foreign
        and "__pycache__" not in path.parts
    )
    assert size_bytes < MAX_INSTALLED_BYTES

    done = run(python, "-W", "error", Path(__file__).with_name("smoke.py"), cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    seen = json.loads(done.stdout)
    assert sorted(seen["values"]) == sorted(codec * 100 for codec in CODECS)
    assert seen["refusals"] == [
        f"{package} is not installed: pip install '.[security]' (a clone) or 'headrace[security]'"
        for package in ("cryptography", "jwt")
    ]


def test_the_first_worker_of_the_readme_prints_its_line_and_that_a_broker_runs(
    environment: Path, tmp_path: Path
) -> None:
    program, start, *_ = blocks("README.md")
    (tmp_path / program.title).write_text(program.text)
    words = start.text.partition("#")[0].split()
    done = run("timeout", "-s", "INT", "15", environment / "bin" / words[0], words[1], cwd=tmp_path)
    assert done.stdout == "packing three blue boxes\n"
    (line,) = done.stderr.splitlines()
    assert line.startswith("App() has no address: a broker runs in this process, at 127.0.0.1:")


@pytest.mark.parametrize(
    ("command", "package", "extra"),
    [
        ("ui", "jinja2", "ui"),
        ("keda-scaler", "grpc", "keda"),
    ],
)
def test_a_command_names_the_extra_that_it_needs(
    environment: Path, tmp_path: Path, command: str, package: str, extra: str
) -> None:
    done = run(environment / "bin/headrace", command, cwd=tmp_path)
    hint = f"{package} is not installed: pip install '.[{extra}]' (a clone) or 'headrace[{extra}]'"
    assert (done.returncode, done.stderr) == (1, f"headrace {command}: {hint}\n")
