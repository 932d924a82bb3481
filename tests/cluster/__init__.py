"""A package, so that its Ray stops after its last test: idle processes of Ray use a tenth of a core."""
