//! A cluster to try out: `cluster_double [nodes [GPUs of each [port]]]` serves the double with TLS and a token.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a tool for tests and demos")]

use gpuvitals_rig::cluster::{Behaviour, Double, NodeSpec, World};

#[tokio::main]
async fn main() {
    let numbers: Vec<usize> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    let number = |at: usize, default| numbers.get(at).copied().unwrap_or(default);
    let mut nodes: Vec<NodeSpec> =
        (0..number(0, 4)).map(|at| NodeSpec::new(&format!("node-{at}"), number(1, 8))).collect();
    nodes.push(NodeSpec::new("sick", number(1, 8)).with(Behaviour::Hang));
    let mut world = World::new(nodes);
    world.token = Some("demo-token".to_owned());
    let double = Double::start_tls_at(world, u16::try_from(number(2, 0)).unwrap()).await;
    println!("{}", double.url);
    println!("{}", double.ca.as_deref().unwrap_or_default());
    let mut seen = double.seen();
    while seen.changed().await.is_ok() {
        let last = seen.borrow_and_update().last().cloned();
        if let Some(request) = last {
            eprintln!("{} {}?{}", request.status, request.path, request.query);
        }
    }
}
