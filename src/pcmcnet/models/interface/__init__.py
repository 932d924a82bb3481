"""What all models have in common: fit and predict, options, summaries, tools of scikit-learn, files of predictions."""
