"""Files that forerun reads for training and evaluation (README.md of this distribution)."""
