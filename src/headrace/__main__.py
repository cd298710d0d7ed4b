"""``python -m headrace``: the same as the command ``headrace``."""

from headrace.cli.main import main

raise SystemExit(main())
