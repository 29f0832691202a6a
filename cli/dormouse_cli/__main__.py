"""Runs the command line: ``python -m dormouse_cli``."""

from dormouse_cli.main import main

main()
