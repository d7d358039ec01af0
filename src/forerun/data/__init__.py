"""What we know: measurements, ours and other people's, in one store."""
