"""GRPO with the conventions of other frameworks: their advantages, clipping and aggregation, number for number."""
