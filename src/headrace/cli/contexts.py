"""The file of named connections: ``headrace/contexts.json`` of the user's configuration."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from headrace.patterns import meant

from .errors import BadUsage, Failure


class Context(msgspec.Struct):
    """A connection.

    :param command_config: the absolute path of a properties file, or None
    """

    bootstrap_servers: str
    command_config: str | None = None


class Contexts(msgspec.Struct):
    """The content of the file.

    :param named: name → connection
    :param current: the name of the one that commands use unless told otherwise, or None
    """

    named: dict[str, Context]
    current: str | None = None

    def get(self, name: str) -> Context:
        """Return a connection.

        :raises BadUsage: there is none of this name
        """
        if name not in self.named:
            hint = meant(name, self.named) or "headrace context list shows them"
            raise BadUsage(f"no context '{name}': {hint}")
        return self.named[name]

    def write(self) -> None:
        """Replace the file.

        :raises Failure: it cannot be written
        """
        path = _path()
        new = path.with_suffix(".new")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            new.write_bytes(msgspec.json.format(msgspec.json.encode(self)) + b"\n")
            new.replace(path)
        except OSError as error:
            raise Failure(f"cannot write {path}: {error.strerror}") from error


def _path() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME")
    try:
        config_home = Path(base) if base else Path.home() / ".config"
    except RuntimeError:  # a user without a name and HOME
        config_home = Path("/.config")
    return config_home / "headrace" / "contexts.json"


def read_contexts() -> Contexts:
    """Read the file.

    :raises BadUsage: it cannot be read
    """
    path = _path()
    try:
        return msgspec.json.decode(path.read_bytes(), type=Contexts)
    except FileNotFoundError:
        return Contexts({})
    except OSError as error:
        raise BadUsage(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError):
        raise BadUsage(f"{path} is not what headrace context writes: delete it") from None
