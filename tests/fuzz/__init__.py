"""Fuzzing: requests of every API and version with odd values, against a broker that must not care.

``python -m tests.fuzz`` runs it. :mod:`.frames` writes the requests from the schemas,
:mod:`.ground` has the broker and the checks, and :mod:`.targets` has the functions that
coverage-guided fuzzing calls. Every crash that was found is a file in ``cases/``, which
``test_cases.py`` runs again.
"""
