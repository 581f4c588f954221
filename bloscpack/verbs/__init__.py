"""The verbs of ``blpk`` beside the four of old: one module each, loaded when called."""
