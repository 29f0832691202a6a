"""An instance in a folder beside other stores that a program embeds."""
