"""The interactive report: one HTML file, made only from records, that opens without a network."""
