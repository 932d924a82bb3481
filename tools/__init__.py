"""What builds the documentation: the generated parts of the reference, and the outputs of the tutorials."""
