"""What networks make of contents, one module per kind: vectors, and parts of a utility.

Only networks need PyTorch: a kind imports its module when it is asked for an encoder or a worth, and tables are read,
scanned and learnt from without it.
"""
