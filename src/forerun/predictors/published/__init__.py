"""Predictors of the literature, rebuilt under our contract."""
