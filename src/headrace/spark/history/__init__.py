"""``headrace lag history``."""
