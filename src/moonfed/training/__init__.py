"""Training owns the clock: settings, trials, cohorts and the only round loop."""
