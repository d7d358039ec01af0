"""Keras, TensorFlow and Paddle models, converted to ONNX in environments of their own."""
