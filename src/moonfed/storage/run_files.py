"""The names of the files in a run folder."""

CONFIG, LOG, EVALUATION = "config.json", "rounds.jsonl", "evaluation.json"
FINAL, FAILURE, ENCODING = "final.safetensors", "failure.json", "encoding.json"
ROSTER = "federation.json"  # the sites of a federation
CHECKPOINT = "checkpoint"  # the folder of the last two committed rounds
FEDERATION = "federation"  # where a federation on one machine keeps its keys, its sites and their logs
