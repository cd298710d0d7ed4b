"""The broker around the machines: sockets, event loop, clock and disk."""
