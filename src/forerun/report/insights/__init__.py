"""What all rows of the store say together: effects of size, batch, prompt length, precision and device."""
