"""How uploads are combined at the server. Each file names its PRESET, with plain local SGD."""
