"""The registry of APIs, by key. Each API is one module, ``api_NN_name.py``, which declares it at
its head (``API = Api(...)``) and serves its calls: ``async def handle(call, request)``.

A module is imported with the first request of its API, so that the broker starts quickly.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import NamedTuple

from headrace.net.api import Api, Handle

_MODULES = {
    int(module.name[4:6]): f"{__name__}.{module.name}"
    for module in iter_modules(__path__)
    if module.name.startswith("api_")
}
"""The modules of all APIs."""


class _Apis(Mapping[int, Api]):
    """All served APIs by key; an API is imported when it is first needed."""

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(_MODULES))

    def __len__(self) -> int:
        return len(_MODULES)

    def __contains__(self, api_key: object) -> bool:
        return api_key in _MODULES

    def __getitem__(self, api_key: int) -> Api:
        return served(api_key).api


APIS = _Apis()


class Served(NamedTuple):
    """An API and the function that serves it."""

    api: Api
    handle: Handle


@cache
def served(api_key: int) -> Served:
    """Return an API of :data:`APIS`.

    :raises KeyError: there is none
    """
    module = import_module(_MODULES[api_key])
    return Served(module.API, module.handle)
