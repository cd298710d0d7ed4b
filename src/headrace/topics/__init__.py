"""Topics: the catalog, their logs, the sessions and long polls of fetches, look-ups."""
