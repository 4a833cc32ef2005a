"""Programs that write to a vlinder mount whose server is killed, and what must be there afterwards."""
