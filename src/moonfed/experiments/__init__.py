"""Several trials with a question: compare, sweep, tune, and the statistics they share."""
