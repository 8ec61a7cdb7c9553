"""Files: whole or not at all, arrays by name, and the folder of a run."""
