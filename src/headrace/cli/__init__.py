"""The command ``headrace``: one module for each subcommand, imported when it is called."""
