"""Rules without parameters: equal probabilities, and ranking by one feature."""
