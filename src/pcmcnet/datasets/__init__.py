"""Data sets: an example table, simulators with known choice probabilities, and tables from installed packages."""

from pcmcnet.datasets import airline, catalogue, intercity, lpmc, markov, mlba, packaged, truth

__all__ = ["airline", "catalogue", "intercity", "lpmc", "markov", "mlba", "packaged", "truth"]
