"""Run the command line as ``python -m pcmcnet.cli``."""

from pcmcnet.cli import main

main()
