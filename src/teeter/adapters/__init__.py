"""teeter's strategies in the shapes that other libraries ask for, one library a file."""
