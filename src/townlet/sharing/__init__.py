"""Share trained policies: export to safetensors or ONNX, and publish folders with a model card."""
