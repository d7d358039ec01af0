"""What training the notable models took: Epoch AI's tables cleaned, holes filled, cost, time and power learned."""
