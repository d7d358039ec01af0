"""What really happened: the measuring protocol, the meters and the sweeps."""
