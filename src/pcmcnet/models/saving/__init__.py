"""Fitted models on disk: saved folders, the folder of a run, weights, forests, and graphs for other programs."""
