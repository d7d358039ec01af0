"""One model on several devices, and the service that each of them gives where it is a language model."""
