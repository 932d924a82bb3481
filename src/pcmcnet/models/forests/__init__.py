"""Forests: one asks of each alternative whether it is the chosen one, the other adds trees up to a utility."""
