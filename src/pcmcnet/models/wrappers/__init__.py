"""Models around other models: an ensemble of several fits, and probabilities calibrated by a temperature."""
