"""``headrace topics``: list, describe, create, alter and delete topics."""
