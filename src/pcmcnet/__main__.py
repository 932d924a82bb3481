"""Run the command-line program as ``python -m pcmcnet``."""

from pcmcnet_command import command

command()
