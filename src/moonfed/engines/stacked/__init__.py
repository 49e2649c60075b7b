"""The stacked engine: lanes (trial x party) trained as one vectorised step."""
