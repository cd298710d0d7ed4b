"""``headrace context``: give names to clusters, and choose one for the commands that follow."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from msgspec.structs import asdict

from .contexts import Context, read_contexts
from .errors import BadUsage
from .nouns import Noun
from .options import arg
from .output import Output, output_option

NOUN = Noun()
_NAME = arg("name", "CONTEXT", "its name")


@NOUN.verb("list", "list contexts", output_option, examples="headrace context list")
def list_contexts(options: Namespace) -> None:
    """Print contexts."""
    contexts = read_contexts()
    Output(options.output).rows(
        [
            {
                "context": name,
                "current": name == contexts.current,
                **asdict(context),
            }
            for name, context in contexts.named.items()
        ],
        nothing="there are no contexts: headrace context add NAME -b HOST:PORT",
    )


@NOUN.verb(
    "add",
    "add a context, or change it",
    _NAME,
    arg("-b --bootstrap-server", "HOST:PORT,…", "its brokers", required=True),
    arg("--command-config", "FILE", "its properties file of client configs"),
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
