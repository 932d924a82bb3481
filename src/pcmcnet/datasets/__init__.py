"""Named tables: simulators whose answers are known, and tables that ship inside installed packages."""

from pcmcnet.datasets import mlba, packaged

__all__ = ["mlba", "packaged"]
