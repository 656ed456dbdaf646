"""Decode-time grammars: what a decoder may write, computed from the same table that reads it."""
