"""One module a command; each adds itself to the command line and imports its room when it runs."""
