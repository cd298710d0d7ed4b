"""``headrace users``."""
