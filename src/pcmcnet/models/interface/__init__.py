"""The interface of all models: options, fit, prediction, saving and loading."""
