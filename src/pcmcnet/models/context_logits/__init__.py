"""Logits whose utilities depend on the other alternatives of the choice set."""
