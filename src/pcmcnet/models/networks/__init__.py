"""Networks: training and fitting, averages, latent classes, derivatives, export and drawing."""
