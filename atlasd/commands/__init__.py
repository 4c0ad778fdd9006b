"""The commands of the program, one file each; heavy modules are imported by the command that needs them."""
