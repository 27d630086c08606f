"""Jobs as the command line starts and shows them."""
