"""Models of items: strengths or rates of labelled alternatives, fitted to the counts of distinct choice sets."""
