"""Columns in memory: arrays, distinct values, arithmetic within choice sets, statistics, names."""
