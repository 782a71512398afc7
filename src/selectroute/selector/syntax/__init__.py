"""Text to expression: tokens, parser, the expression tree, its checks, and back to text."""
