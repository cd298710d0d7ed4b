"""Attacks on a live broker: each beside an honest client, with the broker's memory measured.

``harness.py`` has what the attacks share. A test names the resource that the attack goes for, the
bound that holds it, and asserts on bytes, counts and order; timed assertions are generous and
marked ``slow``.
"""
