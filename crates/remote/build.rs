//! Compiles the definition of the network protocol.

use std::error::Error;
use std::path::Path;

use prost::Message as _;

fn main() -> Result<(), Box<dyn Error>> {
    let root = "../../api/proto";
    for name in ["history", "clusters"] {
        println!("cargo:rerun-if-changed={root}/gpuvitals/{name}");
        let definition = protox::compile([format!("{root}/gpuvitals/{name}/v1/{name}.proto")], [root])?;
        // For those who ask the service what it is.
        let file = Path::new(&std::env::var("OUT_DIR")?).join(format!("{name}.binpb"));
        std::fs::write(file, definition.encode_to_vec())?;
        tonic_prost_build::configure().bytes(".").compile_fds(definition)?;
    }
    Ok(())
}
