"""Terms of a glossary are translated as it says."""
