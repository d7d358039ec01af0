"""`forerun adapt`: the default predictor's corrections of a device from a handful of measured calls."""
