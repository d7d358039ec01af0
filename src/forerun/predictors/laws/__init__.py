"""Laws of physics and of software that all predictors share."""
