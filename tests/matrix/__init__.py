"""Values of connectors in each format and declared type: each is read correctly, or refused with a remedy."""
