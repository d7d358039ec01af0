"""Tabular models: scikit-learn's estimators, XGBoost and LightGBM, by their settings or as fitted estimators."""
