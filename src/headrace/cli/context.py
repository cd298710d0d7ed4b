"""``headrace context``: give names to clusters, and choose one for the commands that follow. A file
of the user's configuration, ``headrace/contexts.json``, has them.
"""

from __future__ import annotations

import os
from argparse import Namespace
from pathlib import Path

import msgspec

from headrace.patterns import meant

from .errors import BadUsage, Failure
from .nouns import Noun, arg, file_option
from .output import Output, output_option

NOUN = Noun("list")
_NAME = arg("name", metavar="CONTEXT", help="its name")


@NOUN.verb("list", "list contexts", output_option, examples="headrace context list")
def list_contexts(options: Namespace) -> None:
    """Print contexts."""
    contexts = read_contexts()
    Output(options.output).rows(
        [
            {
                "context": name,
                "current": name == contexts.current,
                "bootstrap_servers": context.bootstrap_servers,
                "command_config": context.command_config,
            }
            for name, context in contexts.named.items()
        ],
        nothing="there are no contexts: headrace context add NAME -b HOST:PORT",
    )


@NOUN.verb(
    "add",
    "add a context, or change it",
    _NAME,
    arg("-b", "--bootstrap-server", required=True, metavar="HOST:PORT,…", help="its brokers"),
    file_option("--command-config", "its properties file of client configs"),
    examples="headrace context add prod -b broker:9093 --command-config admin.properties",
)
def add(options: Namespace) -> None:
    """Add a context.

    :raises BadUsage: its file does not exist
    """
    config: Path | None = options.command_config
    if config is not None and not config.is_file():
        raise BadUsage(f"{config} is not a file")
    file = None if config is None else str(config.absolute())
    contexts = read_contexts()
    contexts.named[options.name] = Context(options.bootstrap_server, file)
    contexts.write()


@NOUN.verb("use", "use a context from now on", _NAME, examples="headrace context use prod")
def use(options: Namespace) -> None:
    """Choose a context.

    :raises BadUsage: it does not exist
    """
    contexts = read_contexts()
    contexts.get(options.name)
    contexts.current = options.name
    contexts.write()


@NOUN.verb("remove", "remove a context", _NAME, examples="headrace context remove prod")
def remove(options: Namespace) -> None:
    """Remove a context; if it is the current one, none is any more.

    :raises BadUsage: it does not exist
    """
    contexts = read_contexts()
    contexts.get(options.name)
    del contexts.named[options.name]
    if contexts.current == options.name:
        contexts.current = None
    contexts.write()


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
    return (Path(base) if base else Path.home() / ".config") / "headrace" / "contexts.json"


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
