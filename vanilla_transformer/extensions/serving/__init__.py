"""HTTP service and web page for a translation model."""
