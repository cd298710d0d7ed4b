"""The file of named connections: ``headrace/contexts.json`` of the user's configuration."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import NamedTuple

from headrace.patterns import meant

from .errors import BadUsage, Failure


class Context(NamedTuple):
    """A connection.

    :param command_config: the absolute path of a properties file, or None
    """

    bootstrap_servers: str
    command_config: str | None = None


class Contexts(NamedTuple):
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
        named = {name: context._asdict() for name, context in self.named.items()}
        new = path.with_suffix(".new")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            new.write_text(json.dumps({"named": named, "current": self.current}, indent=2) + "\n")
            new.replace(path)
        except OSError as error:
            raise Failure(f"cannot write {path}: {error.strerror}") from error


def _path() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "headrace" / "contexts.json"


def read_contexts() -> Contexts:
    """Read the file.

    :raises BadUsage: it cannot be read
    """
    path = _path()
    try:
        content = json.loads(path.read_bytes())
        named = {name: Context(**fields) for name, fields in content["named"].items()}
        current = content["current"]
        texts = [context.bootstrap_servers for context in named.values()]
        optional = [current, *(context.command_config for context in named.values())]
        texts += [text for text in optional if text is not None]
        if all(isinstance(text, str) for text in texts):
            return Contexts(named, current)
    except FileNotFoundError:
        return Contexts({})
    except OSError as error:
        raise BadUsage(f"cannot read {path}: {error.strerror}") from error
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        pass
    raise BadUsage(f"{path} is not what headrace context writes: delete it")
