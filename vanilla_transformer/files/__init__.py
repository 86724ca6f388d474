"""Files and folders, and the text in them."""
