"""What only GPUs need: CUDA graphs, numeric precision, special convolutions."""
