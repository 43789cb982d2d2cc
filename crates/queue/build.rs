//! Compiles the definition of the network protocol.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let root = "../../api/proto";
    println!("cargo:rerun-if-changed={root}");
    let definition = protox::compile([format!("{root}/gpuvitals/queue/v1/queue.proto")], [root])?;
    tonic_prost_build::configure().bytes(".").compile_fds(definition)?;
    Ok(())
}
