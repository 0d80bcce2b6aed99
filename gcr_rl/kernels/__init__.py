"""Fast twins of reference functions, same signatures; nothing here without a reference."""
