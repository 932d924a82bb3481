"""Files and frames: reading tables into Arrow, and writing them."""
