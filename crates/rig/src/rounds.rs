//! How many rounds a test takes.

/// So many where it may take long (`GPUVITALS_TEST_LONG`), otherwise a third: of unoptimised code that reads and writes files a round
/// takes up to seconds, and the next run draws others.
pub fn rounds(long: u32) -> u32 {
    if std::env::var_os("GPUVITALS_TEST_LONG").is_some() { long } else { long / 3 }
}
