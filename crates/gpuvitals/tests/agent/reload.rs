//! SIGHUP: new settings without a restart.

use gpuvitals_rig::authority::CertificateAuthority;

use super::node::{Node, VEGA56, series};
use super::process::{curl, value};

const SUCCESSFUL: &str = "gpuvitals_config_last_reload_successful ";

#[test]
fn new_settings_come_into_force_and_wrong_ones_do_not() {
    let node = Node::new();
    let file = node.write("gpuvitals.yaml", "agent:\n  metrics: basic\n");
    let agent = node.agent(&["--config", file.to_str().unwrap()]);
    let power = series("gpu_power_watts", 1, VEGA56);
    let average = series("gpu_power_average_watts", 1, VEGA56);
    let dcgm = "\nDCGM_FI_DEV_BOARD_POWER_WATTS{";
    let basic = agent.until("a row", |text| value(text, &power).is_some());
    assert!(!basic.contains(&average) && !basic.contains(dcgm), "{basic}");

    node.write("gpuvitals.yaml", "agent:\n  metrics: all\n  compat: dcgm\n  listen: 127.0.0.2\n");
    agent.process.signal("HUP");
    agent.until("more series", |text| text.contains(&average) && text.contains(dcgm));
    assert_eq!(agent.logged("only a restart")["setting"], "agent.listen");

    for wrong in ["agent:\n  metrics: everything\n", "agent: [\n", "agent:\n  metrix: all\n"] {
        node.write("gpuvitals.yaml", wrong);
        agent.process.signal("HUP");
        let text = agent.until("a failed reload", |text| value(text, SUCCESSFUL) == Some(0.0));
        assert!(text.contains(&average), "the old settings stay in force");
        node.write("gpuvitals.yaml", "agent:\n  metrics: all\n  compat: dcgm\n");
        agent.process.signal("HUP");
        agent.until("a reload", |text| value(text, SUCCESSFUL) == Some(1.0));
    }
    let said = agent.logged("was not reloaded");
    assert!(said["reason"].as_str().unwrap().contains("metrics"), "{said}");
}

#[test]
fn certificates_are_renewed_and_broken_ones_are_not_taken() {
    let node = Node::new();
    let (old, new) = (CertificateAuthority::new(), CertificateAuthority::new());
    let (old_ca, new_ca) = (old.file(node.path("old.crt")), new.file(node.path("new.crt")));
    let pair = old.sign("127.0.0.1", &node.path(""));
    let (cert, key) = (pair.cert.to_str().unwrap(), pair.key.to_str().unwrap());
    let agent = node.agent(&["--tls-cert", cert, "--tls-key", key]);
    let get = |ca: &std::path::Path| curl(&agent.url, &["--cacert", ca.to_str().unwrap()]);
    assert_eq!(get(&old_ca).unwrap().status, 200);

    std::fs::write(&pair.key, "no key").unwrap();
    agent.process.signal("HUP");
    agent.logged("was not reloaded");
    assert!(get(&old_ca).unwrap().text().contains("gpuvitals_config_last_reload_successful 0\n"));

    new.sign("127.0.0.1", &node.path(""));
    agent.process.signal("HUP");
    agent.logged("the configuration was reloaded");
    assert_eq!(get(&new_ca).unwrap().status, 200);
    assert!(get(&old_ca).is_err());

    // Kubernetes renews a secret and sends no signal.
    old.sign("127.0.0.1", &node.path(""));
    agent.logged("certificates or tokens have changed, and the new ones are in force");
    assert_eq!(get(&old_ca).unwrap().status, 200);
    assert_eq!(agent.terminate(), Some(0));
}
