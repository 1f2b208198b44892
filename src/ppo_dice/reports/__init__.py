"""Files → figures and tables. Nothing here trains or evaluates."""
