//! Any text as what the kernel tells of an open file of a GPU.
#![no_main]

use gpuvitals_sources::dialect::amd_sysfs::is_pci_address;
use gpuvitals_sources::processes::parse_fdinfo;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Some(client) = parse_fdinfo(text) else { return };
    assert!(client.pci.as_deref().is_none_or(is_pci_address));
    assert!(client.engines.len() <= 64);
    assert!(client.engines.iter().all(|(name, engine)| !name.is_empty() && engine.capacity > 0));
});
