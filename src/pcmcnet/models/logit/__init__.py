"""Logit models: utilities specified by a formula, estimated by maximum likelihood, with standard errors."""
