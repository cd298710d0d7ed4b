"""``headrace ui``."""
