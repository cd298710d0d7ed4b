"""The shell around the machines: the only place with sockets, an event loop, a clock and a writing
path.
"""
