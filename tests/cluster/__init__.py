"""A package, so that its Ray ends with its last test: processes of Ray that wait take a tenth of a core."""
