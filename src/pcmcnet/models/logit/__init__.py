"""Logit models: utilities by formula, estimated by maximum likelihood with standard errors."""
