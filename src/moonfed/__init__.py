"""moonfed: federated learning on non-IID data, built round MOON."""

__version__ = "0.1.0"
