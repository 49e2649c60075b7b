"""The protocol between coordinator and sites: requests, replies, signatures, and tensors as they travel."""
