"""What predictors share that look at a network as a whole, as those of the literature do, and not op by op."""
