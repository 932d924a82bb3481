"""Networks that score each alternative of a set given the others, and what they share."""
