"""Notes of graphs that come from ONNX files. They hold where PyTorch runs the network, not where onnxruntime does."""

PYTORCH_NOTE = "the network is predicted as eager PyTorch would run it, not as onnxruntime or TensorRT would"
INT8_NOTE = (
    "8-bit convolutions and products are taken as one int8 kernel each, their quantize and dequantize steps inside, at "
    "the device's int8 rate; no such kernel was measured"
)
