"""The app that a command line names."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from traceback import extract_tb
from typing import TYPE_CHECKING

import headrace
from headrace.cli.errors import BadUsage, Failure

if TYPE_CHECKING:
    from headrace.worker.app import App


_HEADRACE = os.path.dirname(headrace.__file__) + os.sep


def load_app(name: str) -> App:
    """Import an app.

    :param name: ``MODULE:APP``; modules of the working directory come first
    :raises BadUsage: there is no such module or app
    :raises Failure: the module fails
    """
    module_name, _, attribute = name.partition(":")
    if not attribute or not all(part.isidentifier() for part in module_name.split(".")):
        raise BadUsage(f"'{name}' is not of the form MODULE:APP, such as shop:app")
    if "" not in sys.path:
        sys.path.insert(0, os.getcwd())
    from headrace.worker.app import App, hint

    App.is_being_loaded = True
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise Failure(f"cannot import {module_name}: {_where(error)}") from error
        raise BadUsage(f"there is no module '{error.name}' in {os.getcwd()} or sys.path") from error
    except (Exception, SystemExit) as error:
        raise Failure(f"cannot import {module_name}: {_where(error)}") from error
    finally:
        App.is_being_loaded = False
    apps = [key for key, value in vars(module).items() if isinstance(value, App)]
    app = getattr(module, attribute, None)
    if not isinstance(app, App):
        what = "is no headrace.App" if hasattr(module, attribute) else "does not exist"
        raise BadUsage(f"{module_name}:{attribute} {what}: {hint(attribute, apps, 'app')}")
    return app


def _where(error: BaseException) -> str:
    """Return an exception, and the line outside of headrace that has led to it."""
    from headrace.client.errors import ClientError

    reason = f"{type(error).__name__}: {error}".rstrip(": ")
    if isinstance(error, ClientError):
        reason = str(error)
    if isinstance(error, SyntaxError):
        return reason
    frames = extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith((_HEADRACE, "<frozen "))]
    last = (own or frames)[-1]
    return f"{reason} ({last.filename}, line {last.lineno})"
