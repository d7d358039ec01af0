"""Views of answers as lines and tables: one file for each kind."""
