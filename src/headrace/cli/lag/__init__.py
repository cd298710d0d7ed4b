"""``headrace lag show`` and ``headrace lag history``."""
