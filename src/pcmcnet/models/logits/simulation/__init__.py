"""Random coefficients by simulation: draws of each person, distributions, and the coefficients they make."""
