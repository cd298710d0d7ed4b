"""The command ``headrace``: one module per subcommand, imported when it is called."""
