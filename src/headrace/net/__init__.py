"""Between sockets and handlers: the declaration of an API, a call of it, and how it is served."""
