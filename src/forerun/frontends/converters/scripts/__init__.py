"""Scripts that turn another framework's file into ONNX. Each runs in a Python of its own and imports no forerun."""
