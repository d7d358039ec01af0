"""How good we are: metrics, the scoreboard, and the suite that every predictor passes."""
