"""What to do with a prediction: does it fit, on which slice, at what price, with how much carbon."""
