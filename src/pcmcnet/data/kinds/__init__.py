"""One module per kind of column: how it is read, coded, streamed, encoded, described and asked for."""
