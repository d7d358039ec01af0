"""Plans: how many devices, laid out how, for a job; searched over layouts."""
