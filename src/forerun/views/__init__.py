"""How decisions look on a terminal: one file of rich tables for each."""
