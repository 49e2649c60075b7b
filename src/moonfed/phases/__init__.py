"""What is done to a model after training. Each file names its PRESET, which is added to an algorithm: fedavg+ccvr."""
