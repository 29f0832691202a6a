"""What every Lambda function does around a stage: parse the event, call, send, report failures."""
