"""How the default predictor is made from the store: rows become cases, cases become weights."""
