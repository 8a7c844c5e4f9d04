"""The command line, see :mod:`headway.cli.program`."""

from headway.cli.program import main as main
