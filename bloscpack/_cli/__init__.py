"""The command ``blpk``: the only code that prints or exits."""
