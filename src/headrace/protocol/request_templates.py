"""Request templates: serve requests with a known prefix without reading them (docs/decisions/0009).

A producer repeats the same bytes before its records, a consumer before its offsets. A template is
made from a request that was read and served. It keeps the results of reading the prefix, so that
only the rest of later requests is read. A template returns None for anything unusual; then the
request is read and served as usual.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from struct import Struct
from typing import Any, Protocol

from .frames import SIZE, RequestHeader

MAX_PREFIX_LENGTHS = 16
"""The most prefix lengths of one API on one connection, tried in turn; one more discards all
templates. Names of different lengths give different prefix lengths.
"""

MAX_PREFIX_BYTES = 1024
"""The largest prefix of a template: it stays in memory, and its names may be of any length."""

_FIXED_PREFIX = "4s4s"
"""Api key and version, correlation id."""


class RequestTemplate(Protocol):
    """Requests of one API and version with the same prefix, except for the correlation id.

    :ivar prefix_bytes: the length of the prefix in the frame
    """

    @property
    def prefix_bytes(self) -> int: ...

    def try_serve(self, frame: memoryview, correlation_id: bytes) -> Any:
        """Serve a request with this prefix.

        :returns: the response's frame, or a deferred one; None if the request has to be read
        """


MakeTemplate = Callable[[memoryview, RequestHeader, Any], RequestTemplate | None]
"""``make(frame, header, call)``: returns a template of a request that was served; None if it cannot
have one.
"""


_Unpack = Callable[[memoryview], tuple[Any, ...]]
"""Returns api key and version, correlation id and the rest of the prefix of a frame."""
_ByPrefix = dict[tuple[bytes, bytes], RequestTemplate]


@dataclass(slots=True)
class RequestTemplates:
    """The templates of one API on one connection.

    :param _make: makes a template
    :param _max_templates: one more discards them all
    """

    _make: MakeTemplate
    _max_templates: int
    _by_length: dict[int, tuple[_Unpack, _ByPrefix]] = field(default_factory=dict)

    def try_serve(self, frame: memoryview) -> Any:
        """Serve a request by the template with its prefix, as in :class:`RequestTemplate`."""
        frame_bytes = len(frame)
        for prefix_bytes, (unpack, templates) in self._by_length.items():
            if frame_bytes > prefix_bytes:
                version, correlation_id, rest = unpack(frame)
                template = templates.get((version, rest))
                if template is not None:
                    return template.try_serve(frame, correlation_id)
        return None

    def __len__(self) -> int:
        return sum(len(templates) for _, templates in self._by_length.values())

    def remember(self, frame: memoryview, header: RequestHeader, call: Any) -> None:
        """Make a template of a request that was served, if possible."""
        template = self._make(frame, header, call)
        if template is None or template.prefix_bytes > MAX_PREFIX_BYTES:
            return
        length = template.prefix_bytes
        if len(self) >= self._max_templates or (
            length not in self._by_length and len(self._by_length) >= MAX_PREFIX_LENGTHS
        ):
            self._by_length.clear()
        if length not in self._by_length:
            rest_bytes = length - 2 * SIZE.size
            self._by_length[length] = Struct(f">{_FIXED_PREFIX}{rest_bytes}s").unpack_from, {}
        unpack, templates = self._by_length[length]
        version, _, rest = unpack(frame)
        templates[version, rest] = template
