"""The registry of APIs, by key. Each API is one module, ``api_NN_name.py``, which declares it at
its head (``API = Api(...)``) and serves its calls: ``async def handle(call, request)``.
"""

from __future__ import annotations

from pkgutil import iter_modules

from headrace.net.api import Apis

APIS = Apis(
    {
        int(module.name[4:6]): f"{__name__}.{module.name}"
        for module in iter_modules(__path__)
        if module.name.startswith("api_")
    }
)
