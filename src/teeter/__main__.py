"""Run ``teeter`` as ``python -m teeter``."""

from teeter.cli import main

main()
