"""ONNX files: read, walked with all shapes known, converted to the IR."""
