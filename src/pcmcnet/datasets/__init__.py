"""Data sets: simulators with known choice probabilities, and public tables from installed packages."""

from pcmcnet.datasets import airline, catalogue, lpmc, markov, mlba, packaged, truth

__all__ = ["airline", "catalogue", "lpmc", "markov", "mlba", "packaged", "truth"]
