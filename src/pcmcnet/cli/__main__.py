"""Run the command-line program as ``python -m pcmcnet.cli``."""

from pcmcnet_command import command

command()
