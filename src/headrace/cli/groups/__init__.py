"""``headrace groups``: one noun for groups of all types."""

from . import offsets
from .verbs import NOUN

__all__ = ["NOUN", "offsets"]
