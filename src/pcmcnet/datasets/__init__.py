"""Named tables: simulators whose answers are known, and tables that ship inside installed packages."""

from pcmcnet.datasets import airline, markov, mlba, packaged, truth

__all__ = ["airline", "markov", "mlba", "packaged", "truth"]
