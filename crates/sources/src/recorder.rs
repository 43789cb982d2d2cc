//! Recordings: Parquet files that are written as it goes and survive a kill.
