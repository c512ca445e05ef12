"""The served model: sizes, weights, forward pass and tokenizer."""
