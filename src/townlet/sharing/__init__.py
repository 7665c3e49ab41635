"""Trained policies for others: published folders with a model card, and exports as safetensors or ONNX."""
