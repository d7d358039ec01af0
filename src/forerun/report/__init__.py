"""A self-contained HTML page that analyses a model: what it shows comes from predictions and advice."""
