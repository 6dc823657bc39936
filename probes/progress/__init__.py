"""How far long work is: what its loops tell, and the line of a terminal that shows it."""
