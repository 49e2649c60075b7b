"""What travels between sites and coordinator: requests, signatures, encoding of tensors."""
