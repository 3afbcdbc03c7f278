"""Records what Dynamo and AOTAutograd compile, and each run of what they compiled."""
