"""Charts, atlases and the actions of matrices on what they show."""
