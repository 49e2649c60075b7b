"""The run owns disk and clock: settings, the round loop, records and checkpoints."""
