"""Forests: a random forest that asks of each alternative whether it is the chosen one."""
