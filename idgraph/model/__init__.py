"""The words of the design as types, and the one error tree. Imports nothing of ours."""
