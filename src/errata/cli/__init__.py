"""The command line: one file a command group; nothing heavy is imported before it is needed."""
