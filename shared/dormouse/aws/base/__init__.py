"""What all AWS adapters share.

- `clients`: clients of AWS services, with the checks of their answers.
- `failures`: the translation of failed requests into errors of Dormouse.
- `logs`: the structured log of a function.
- `metrics`: CloudWatch metrics in the embedded metric format.
"""
