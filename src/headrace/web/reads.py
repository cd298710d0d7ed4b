"""Threads for what takes long: records of megabytes are opened and written in them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from .limits import MAX_READS

T = TypeVar("T")

_THREADS = ThreadPoolExecutor(MAX_READS, "records")
"""Few threads, because each keeps some of the memory that it has used."""


async def in_thread(function: Callable[..., T], *arguments: object) -> T:
    """Return what a function returns that takes long."""
    return await asyncio.get_running_loop().run_in_executor(_THREADS, function, *arguments)
