"""Models of items: strengths or rates of labelled alternatives, fitted to counts of distinct choice sets."""
