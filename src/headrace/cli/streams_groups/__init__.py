"""``headrace streams-groups``."""
