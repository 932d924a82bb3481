"""The paper's experiments: each fits its models, evaluates them and writes a report with the published results."""
