"""The public functions: a request made ready for a predictor, an answer put together from its parts."""
