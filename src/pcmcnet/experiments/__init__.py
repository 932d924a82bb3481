"""The paper's experiments: fit and evaluate the models, and report the results next to the published ones."""
