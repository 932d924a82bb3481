"""Files and folders: written whole or not at all, by one writer at a time, and checked when they are read."""
