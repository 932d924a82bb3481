"""Insight into fitted models, computed from their probabilities for observed and changed choice sets."""
