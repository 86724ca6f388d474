"""Model cards, checks and upload of a trained model."""
