"""Backup and restore of data directories: ``headrace backup`` and ``headrace restore``.

:mod:`.source` lists the files of a data directory, of a stopped broker or from a snapshot of a
running one. :mod:`.target` builds the copy under a temporary name. :mod:`.copy` copies files with
checksums, :mod:`.manifest` keeps the checksums, :mod:`.commands` puts these together.
"""
