"""What a job takes, what fits into a budget, and which model to choose."""
