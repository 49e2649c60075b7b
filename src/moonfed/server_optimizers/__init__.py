"""How the combined update moves the global model. Each file names its PRESET, with plain local SGD."""
