"""The verbs of the command, by what they are about; `dormouse_cli.main` lists them."""
