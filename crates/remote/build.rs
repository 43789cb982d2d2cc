//! Compiles the definition of the network protocol.

use std::error::Error;
use std::path::Path;

use prost::Message as _;

fn main() -> Result<(), Box<dyn Error>> {
    let root = "../../api/proto";
    println!("cargo:rerun-if-changed={root}/gpuvitals/history");
    let definition = protox::compile([format!("{root}/gpuvitals/history/v1/history.proto")], [root])?;
    // For those who ask the service what it is.
    let file = Path::new(&std::env::var("OUT_DIR")?).join("history.binpb");
    std::fs::write(file, definition.encode_to_vec())?;
    tonic_prost_build::configure().bytes(".").compile_fds(definition)?;
    Ok(())
}
