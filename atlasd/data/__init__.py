"""Files of other people's data, turned into labelled arrays."""
