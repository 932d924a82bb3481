"""Data sets: simulators with known choice probabilities, and public tables from installed packages."""

from pcmcnet.datasets import airline, markov, mlba, packaged, truth

__all__ = ["airline", "markov", "mlba", "packaged", "truth"]
