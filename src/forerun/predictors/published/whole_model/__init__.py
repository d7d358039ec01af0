"""Base classes of predictors that see a network as a whole, as those of the literature do, and not op by op."""
