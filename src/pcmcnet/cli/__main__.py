"""Run the command line as ``python -m pcmcnet.cli``."""

from pcmcnet_command import command

command()
