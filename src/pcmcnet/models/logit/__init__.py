"""Logit models: utilities are specified by formulas and estimated by maximum likelihood, with standard errors."""
