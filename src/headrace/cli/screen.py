"""A terminal as a screen with keys: what it shows, and what is pressed."""

from __future__ import annotations

import os
import re
import termios
import tty
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

_ENTER = "\x1b[?1049h\x1b[?25l\x1b[?7l"
"""The alternate screen, without a cursor and without line breaks of its own."""
_LEAVE = "\x1b[?7h\x1b[?25h\x1b[?1049l"
_KEY = re.compile(r"\x1b[\[O][0-9;]*[A-Za-z~]|.", re.DOTALL)
_NAMES = {
    "\x1b[A": "up",
    "\x1b[B": "down",
    "\x1bOA": "up",
    "\x1bOB": "down",
    "\x1b[5~": "page up",
    "\x1b[6~": "page down",
    "\x1b": "escape",
    "\r": "enter",
    "\n": "enter",
    "\x7f": "backspace",
    "\x08": "backspace",
}


def keys(typed: str) -> list[str]:
    """Return the names of the keys in an input: ``up``, ``enter``, or the character."""
    pressed = _KEY.findall(typed)
    return [_NAMES.get(key, key) for key in pressed if key in _NAMES or len(key) == 1]


@contextmanager
def screen(on_key: Callable[[str], object]) -> Iterator[Callable[[Sequence[str]], None]]:
    """Yield a function that shows lines, and have the running loop call ``on_key`` for each key;
    at the end of the input for ``escape`` and ``q``.

    The screen is as it was before when the block ends.
    """
    import asyncio  # not for a help

    loop, before = asyncio.get_running_loop(), termios.tcgetattr(0)

    def read() -> None:
        typed = b""
        with suppress(OSError):  # the terminal has gone
            typed = os.read(0, 1024)
        if not typed:
            loop.remove_reader(0)
        for key in keys(typed.decode(errors="ignore")) if typed else ("escape", "q"):
            on_key(key)

    def show(lines: Sequence[str]) -> None:
        text = "\x1b[K\r\n".join(lines)
        write(f"\x1b[H{text}\x1b[K\x1b[J")

    def write(text: str) -> None:
        with suppress(OSError):  # the terminal has gone
            os.write(1, text.encode())

    try:
        tty.setcbreak(0)
        loop.add_reader(0, read)
        write(_ENTER)
        yield show
    finally:
        loop.remove_reader(0)
        with suppress(termios.error):
            termios.tcsetattr(0, termios.TCSADRAIN, before)
        write(_LEAVE)
