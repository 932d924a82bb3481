"""Networks inside a random utility: samples of tastes, residuals of utilities, coefficients of individuals."""
