"""Ways of running a network: what each makes of a graph, what it costs, and how it is measured."""
