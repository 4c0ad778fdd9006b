"""Files of data, read into labelled arrays, checked and brought to standard units."""
