"""What to change so that a model runs better."""
