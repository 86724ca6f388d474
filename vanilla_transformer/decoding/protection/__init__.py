"""URLs, placeholders, emoji and long numbers appear in translations as they are."""
