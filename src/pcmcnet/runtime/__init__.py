"""How networks run: on which device, with which settings of torch, and on which batches."""
