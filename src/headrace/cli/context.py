"""``headrace context``: give names to clusters, and choose one for the commands that follow."""

from __future__ import annotations

from pathlib import Path

from .contexts import Context, read_contexts
from .errors import BadUsage
from .nouns import Noun, arg, file_option
from .output import Output, output_option

NOUN = Noun("list")
_NAME = arg("name", metavar="CONTEXT", help="its name")


@NOUN.verb("list", "list contexts", output_option, examples="headrace context list")
def list_contexts(*, output: str) -> None:
    """Print contexts."""
    contexts = read_contexts()
    Output(output).rows(
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
def add(*, name: str, bootstrap_server: str, command_config: Path | None) -> None:
    """Add a context.

    :raises BadUsage: its file does not exist
    """
    if command_config is not None and not command_config.is_file():
        raise BadUsage(f"{command_config} is not a file")
    file = None if command_config is None else str(command_config.absolute())
    contexts = read_contexts()
    contexts.named[name] = Context(bootstrap_server, file)
    contexts.write()


@NOUN.verb("use", "use a context from now on", _NAME, examples="headrace context use prod")
def use(*, name: str) -> None:
    """Choose a context.

    :raises BadUsage: it does not exist
    """
    contexts = read_contexts()
    contexts.get(name)
    contexts.current = name
    contexts.write()


@NOUN.verb("remove", "remove a context", _NAME, examples="headrace context remove prod")
def remove(*, name: str) -> None:
    """Remove a context; if it is the current one, none is any more.

    :raises BadUsage: it does not exist
    """
    contexts = read_contexts()
    contexts.get(name)
    del contexts.named[name]
    if contexts.current == name:
        contexts.current = None
    contexts.write()
