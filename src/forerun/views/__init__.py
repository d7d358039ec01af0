"""What is shown of decisions, as lines and tables: one file for each."""
