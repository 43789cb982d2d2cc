//! What is no table of rows: what tools write for people or for themselves, archives, workbooks; and what to do instead.

/// What it is, and what to do.
type OtherFormat = (&'static str, &'static str);

const QUERY: &str =
    "log with nvidia-smi --query-gpu=timestamp,uuid,power.draw,utilization.gpu --format=csv -l 1";

/// What a text is that begins so, if it is no table.
pub(super) fn text(text: &str) -> Option<OtherFormat> {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let (first, second) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    of_nvidia_smi(text, first).or_else(|| for_people(text, first, second)).or_else(|| of_loggers(first))
}

fn of_nvidia_smi(text: &str, first: &str) -> Option<OtherFormat> {
    let is_alone = || !text.lines().skip(1).any(|line| line.contains([',', ';']));
    Some(if text.contains("NVSMI LOG") {
        ("the text of nvidia-smi -q", QUERY)
    } else if text.contains("| NVIDIA-SMI ") {
        ("the table of nvidia-smi", QUERY)
    } else if text.contains("<nvidia_smi_log>") {
        ("the XML of nvidia-smi -q -x", QUERY)
    } else if (first.starts_with("NVIDIA-SMI has failed") || first.starts_with("Failed to initialize NVML"))
        && is_alone()
    {
        ("a message of nvidia-smi, which reached no driver", "log again where `nvidia-smi` shows the GPUs")
    } else if first.starts_with("No devices were found") && is_alone() {
        ("a message of nvidia-smi, which found no GPU", "log again where `nvidia-smi` shows the GPUs")
    } else {
        return None;
    })
}

fn for_people(text: &str, first: &str, second: &str) -> Option<OtherFormat> {
    let begins = |words: &str| first.get(..words.len()).is_some_and(|it| it.eq_ignore_ascii_case(words));
    let is_json = first.starts_with('{')
        || (first.starts_with('[') && !first.starts_with("[\"") && first.len() < 3)
        || first.starts_with("[{");
    Some(if text.contains("ROCm System Management Interface") {
        ("the text of rocm-smi", "log with rocm-smi -a --csv, or amd-smi metric --csv -w 1")
    } else if is_json {
        (
            "JSON",
            "write it as CSV; messages {\"timestamp\", \"fields\"} can be published to the queue by HTTP",
        )
    } else if begins("<?xml") || begins("<!doctype") || begins("<html") {
        ("XML or HTML", "write its rows as CSV")
    } else if is_spaced_table(first, second) {
        (
            "a table for people, such as amd-smi monitor prints",
            "log it as CSV: amd-smi monitor --csv -w 1, or amd-smi metric --csv -w 1",
        )
    } else {
        return None;
    })
}

fn of_loggers(first: &str) -> Option<OtherFormat> {
    Some(if is_tegrastats(first) {
        ("the text of tegrastats", "log as CSV with jtop (jetson-stats)")
    } else if first.contains("Hardware monitoring log v") {
        ("a log of MSI Afterburner", "log as CSV with GPU-Z, HWiNFO or nvidia-smi --format=csv")
    } else if is_spl(first) {
        (
            "a log of MLPerf's power analyzer, with a name before each value",
            "write it as CSV: a header such as timestamp,power_w above the times and watts",
        )
    } else if first.starts_with(',') && first.contains("/load/") {
        (
            "a log of OpenHardwareMonitor or LibreHardwareMonitor, whose columns have their names in two lines",
            "delete the first line and say what a column is, such as --column \"GPU Core=temperature_c\", or give the second \
             line names such as gpu_temperature",
        )
    } else {
        return None;
    })
}

/// `RAM 4096/30536MB (lfb 200x4MB) … GR3D_FREQ 80%`, with or without a time before it.
fn is_tegrastats(first: &str) -> bool {
    first.contains("RAM ") && first.contains("MB (lfb ") && first.contains("CPU [")
}

/// `Time,12-23-2020 10:21:00.507,Watts,36.04,Volts,228.2`: names and values in turn.
fn is_spl(first: &str) -> bool {
    first.starts_with("Time,") && first.contains(",Watts,") && first.contains(",Volts,")
}

/// Names in capitals between blanks, one of which is the GPU's, above a row between blanks.
fn is_spaced_table(first: &str, second: &str) -> bool {
    let names: Vec<&str> = first.split_whitespace().collect();
    let is_name = |word: &&str| {
        word.chars().all(|c| c.is_ascii_uppercase() || "_%()/.-".contains(c) || c.is_ascii_digit())
    };
    names.len() > 2
        && names.iter().all(is_name)
        && names.contains(&"GPU")
        && !first.contains([',', ';', '\t'])
        && !second.contains([';', '\t'])
        && second.split_whitespace().count() > 2
        && second.starts_with(|c: char| c.is_ascii_digit())
}

/// What bytes are that are no text, by their magic number.
pub(super) fn binary(head: &[u8]) -> Option<OtherFormat> {
    const UNPACK: &str = "unpack it first; gzip alone is read as it is";
    let begins = |magic: &[u8]| head.starts_with(magic);
    Some(if begins(b"PK\x03\x04") {
        let has = |name: &[u8]| memchr::memmem::find(head, name).is_some();
        if has(b"[Content_Types].xml") || has(b"xl/") {
            (
                "a workbook of a spreadsheet (xlsx)",
                "export its sheet as CSV, with times to the second or finer",
            )
        } else if has(b"mimetype") && has(b"opendocument") {
            (
                "a workbook of a spreadsheet (ods)",
                "export its sheet as CSV, with times to the second or finer",
            )
        } else {
            ("a zip archive", UNPACK)
        }
    } else if begins(b"\xd0\xcf\x11\xe0") {
        ("a workbook of a spreadsheet (xls)", "export its sheet as CSV, with times to the second or finer")
    } else if begins(b"\x28\xb5\x2f\xfd") {
        ("compressed with zstd", UNPACK)
    } else if begins(b"\xfd7zXZ\0") {
        ("compressed with xz", UNPACK)
    } else if begins(b"BZh") && head.get(4..10) == Some(b"1AY&SY") {
        ("compressed with bzip2", UNPACK)
    } else if begins(b"7z\xbc\xaf\x27\x1c") {
        ("a 7z archive", UNPACK)
    } else if begins(b"\x04\x22\x4d\x18") {
        ("compressed with lz4", UNPACK)
    } else if begins(b"SQLite format 3") {
        ("a database of SQLite, such as Nsight Systems exports", "export its table as CSV")
    } else if begins(b"\x89HDF") {
        ("an HDF5 file", "write its table as CSV or Parquet")
    } else if begins(b"ARROW1") || begins(b"FEA1") {
        ("an Arrow file", "write it as Parquet")
    } else if begins(b"%PDF") {
        ("a PDF", "give a CSV file")
    } else if head.get(257..262) == Some(b"ustar") {
        ("a tar archive", UNPACK)
    } else {
        return None;
    })
}
