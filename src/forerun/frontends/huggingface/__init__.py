"""Hugging Face configs: the class, its inputs, images, audio, quantisation, the built-in catalogue."""
