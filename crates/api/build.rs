//! Puts the web page into the program, if it has been built: every file of `dashboard/dist`, compressed, in a table.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;

fn main() -> io::Result<()> {
    let dist = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default())
        .join("../../dashboard/dist");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").unwrap_or_default());
    // Cargo watches a folder only if it is there; a path that is missing would rebuild the crate every time. Where the
    // folder cannot be made, that is all that happens.
    let _made = fs::create_dir_all(&dist);
    println!("cargo::rerun-if-changed={}", dist.display());
    println!("cargo::rerun-if-changed=build.rs");
    let mut files = Vec::new();
    collect(&dist, &dist, &mut files)?;
    files.sort();
    // A folder without its page is one that is being built.
    if !files.iter().any(|(name, _)| name == "index.html") {
        files.clear();
    }
    let mut table = String::from("pub(super) static FILES: &[(&str, &[u8])] = &[\n");
    for (number, (name, path)) in files.iter().enumerate() {
        let mut encoder =
            GzEncoder::new(fs::File::create(out.join(format!("page-{number}.gz")))?, Compression::best());
        encoder.write_all(&fs::read(path)?)?;
        encoder.finish()?.sync_all()?;
        writeln!(table, "    ({name:?}, include_bytes!(concat!(env!(\"OUT_DIR\"), \"/page-{number}.gz\"))),")
            .map_err(io::Error::other)?;
    }
    table.push_str("];\n");
    fs::write(out.join("page.rs"), table)
}

/// Files under `folder` with their path from `root`, with `/` between its parts.
fn collect(root: &Path, folder: &Path, files: &mut Vec<(String, PathBuf)>) -> io::Result<()> {
    let Ok(entries) = fs::read_dir(folder) else { return Ok(()) };
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            collect(root, &path, files)?;
        } else if let Ok(name) = path.strip_prefix(root) {
            let parts: Vec<_> = name.components().map(|part| part.as_os_str().to_string_lossy()).collect();
            files.push((parts.join("/"), path));
        }
    }
    Ok(())
}
