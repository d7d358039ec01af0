"""What every package may use: limits, documents, processes, numbers as text and text as numbers."""
