"""Keys, certificates and the folders that hold them."""
