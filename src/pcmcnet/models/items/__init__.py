"""What models of items share: the universe of items, distinct sets of them, strengths and rates fitted to counts."""
