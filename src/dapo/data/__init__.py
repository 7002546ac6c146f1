"""Problems: generated arithmetic, JSONL and parquet files; prompts from chat templates; the resumable prompt stream."""
