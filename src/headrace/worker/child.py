"""A process of :mod:`headrace.worker.processes`: it calls one function again and again."""

from __future__ import annotations

import importlib
import logging
import os
import pickle
import select
import signal
import socket
import struct
import sys
import threading
from collections.abc import Callable
from multiprocessing import spawn
from operator import attrgetter
from traceback import format_exception
from typing import Any, NamedTuple

from headrace.log_lines import shown

from .outcomes import Reject, Retry

LENGTH = struct.Struct(">Q")
"""Before each message of either side: the bytes of a pickled object."""

_CALLERS = "headrace.worker."
"""The modules that call functions: their frames tell nothing of a failure."""
_MAX_FRAMES = 20
_MAX_TEXT_CHARS, _MAX_TRACEBACK_CHARS = 10_000, 8000
_MAX_RESULT_BYTES = 1 << 20
"""The limit of pickled results, which only middleware sees."""


class Start(NamedTuple):
    """The first message to a process.

    :ivar preparation: for :func:`multiprocessing.spawn.prepare`
    :ivar conf: librdkafka's names and values; None for those of the app as it is imported
    """

    preparation: dict[str, Any]
    module: str
    qualname: str
    conf: dict[str, Any] | None
    log_level: int | None
    log_format: str | None


class Failure(NamedTuple):
    """An exception, as it travels: not every one can be pickled.

    :ivar classes: module and qualified name of its class and those above, the closest first
    """

    classes: tuple[tuple[str, str], ...]
    message: str
    traceback: str

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        try:
            message = str(error)[:_MAX_TEXT_CHARS]
        except Exception as problem:
            message = f"no text: {type(problem).__name__}"
        return cls(
            tuple((kind.__module__, kind.__qualname__) for kind in type(error).__mro__),
            message,
            traceback_of(error),
        )

    def exception(self) -> BaseException:
        """Return an exception with the same name and text, of the closest class that can be
        imported here. Its cause has the traceback.
        """
        name = self.classes[0][1]
        members = {
            "__str__": lambda _: self.message,
            "__init__": lambda *_: None,
            "__qualname__": name,
        }
        error: BaseException = RuntimeError(self.message)
        for module, qualname in self.classes:
            try:
                base = find(module, qualname)
                kind: Any = type(name.rpartition(".")[2], (base,), members)
                substitute = kind.__new__(kind, self.message)
            except Exception:  # not every class can be imported here, or has others below it
                continue
            # No coroutine may raise StopIteration.
            if isinstance(substitute, BaseException) and base is not StopIteration:
                error = substitute
                break
        error.__cause__ = RemoteTraceback(self.traceback)
        return error


class Decision(NamedTuple):
    """A :class:`Reject` or :class:`Retry`, as it travels: not every subclass can be pickled."""

    decision: Reject | Retry
    is_raised: bool

    @classmethod
    def of(cls, decision: Reject | Retry, *, is_raised: bool) -> Decision:
        if isinstance(decision, Reject):
            return cls(Reject(str(decision.reason)[:_MAX_TEXT_CHARS]), is_raised)
        return cls(Retry(after=decision.after_s), is_raised)


class RemoteTraceback(Exception):
    """The traceback of an exception in another process, as text."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


def traceback_of(error: BaseException) -> str:
    """Return the traceback of what a function has raised, here or in a process, without the frames
    that have called the function.
    """
    if isinstance(error.__cause__, RemoteTraceback):
        return str(error.__cause__.args[0])
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_globals.get("__name__", "").startswith(_CALLERS):
        frames = frames.tb_next
    try:
        text = "".join(
            # An error of the worker itself has its own frames alone.
            format_exception(type(error), error, frames or error.__traceback__, limit=-_MAX_FRAMES)
        )
    except Exception as failure:  # an exception may have attributes of any kind
        return f"the traceback of {type(error).__name__} cannot be told: {shown(failure)}"
    return text[-_MAX_TRACEBACK_CHARS:]  # its end names the failure


is_child = False
"""True in a process that runs the functions of a worker."""


def main(file_descriptor: int) -> None:
    """Serve calls until the other side closes the connection."""
    global is_child
    is_child = True
    connection = socket.socket(fileno=file_descriptor)
    connection.set_inheritable(False)
    # A handler, not SIG_IGN: programs that functions start shall not ignore them, too.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    threading.Thread(target=_end_with, args=(connection,), daemon=True).start()
    reader = connection.makefile("rb", buffering=1 << 16)

    def receive() -> Any:
        head = reader.read(LENGTH.size)
        if len(head) < LENGTH.size:
            os._exit(0)
        return reader.read(LENGTH.unpack(head)[0])

    def send(message: bytes) -> None:
        try:
            connection.sendall(LENGTH.pack(len(message)) + message)
        except OSError as error:
            sys.exit(f"the function has closed the connection of its process: {error}")

    try:
        function = _function(pickle.loads(receive()))
    except BaseException as error:
        send(pickle.dumps(f"its process cannot import it: {type(error).__name__}: {error}"))
        raise
    send(_NONE)
    process_id = os.getpid()
    while True:
        message = _call(function, receive())
        if os.getpid() != process_id:  # the function has forked, and both have returned
            os._exit(0)
        send(message)


_NONE = pickle.dumps(None)


def _call(function: Callable[..., Any], message: bytes) -> bytes:
    """Return the message with what a function returns or raises."""
    try:
        args, kwargs = pickle.loads(message)
        result = function(*args, **kwargs)
        if isinstance(result, Reject | Retry):
            result = Decision.of(result, is_raised=False)
    except (Reject, Retry) as decision:
        result = Decision.of(decision, is_raised=True)
    except BaseException as error:  # also SystemExit: it ends the function, not the process
        result = Failure.of(error)
    try:
        pickled = pickle.dumps(result)
    except Exception:
        return _NONE
    return pickled if len(pickled) <= _MAX_RESULT_BYTES else _NONE


def _end_with(connection: socket.socket) -> None:
    """End the process with the connection, also while a function runs, with all that functions
    have started.
    """
    poll = select.poll()
    poll.register(connection.fileno(), 0)  # its end is always told
    poll.poll()
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _function(start: Start) -> Callable[..., Any]:
    spawn.prepare(start.preparation)
    task = find(start.module, start.qualname)
    if start.log_level is not None and not logging.root.handlers:
        logging.basicConfig(level=start.log_level, format=start.log_format or logging.BASIC_FORMAT)
    sender = getattr(task, "sender", None)
    if sender is not None and start.conf is not None:
        sender.use(start.conf)  # the embedded broker of an app is another one in this process
    function: Callable[..., Any] = getattr(task, "function", task)
    return function


def find(module: str, qualname: str) -> Any:
    """Return what a module has under a name with dots.

    :raises ImportError: there is no such module
    :raises AttributeError: it has no such name
    """
    return attrgetter(qualname)(importlib.import_module(module))
