//! `pmon` of every driver generation.

use std::fmt::Write;

use gpuvitals_sources::dialect::nvidia_smi::parse_pmon;
use gpuvitals_sources::processes::ProcessKind;
use proptest::prelude::*;

use super::{files, is_as_expected};

#[test]
fn every_generation_parses_by_its_header() {
    for (name, text) in files("pmon", ".txt") {
        let mut got = String::new();
        for row in parse_pmon(&text) {
            writeln!(
                got,
                "gpu {} pid {:?} {} {:?}: sm {:?} mem {:?} enc {:?} dec {:?} fb {:?}",
                row.gpu,
                row.pid,
                row.kind.as_str(),
                row.name,
                row.sm_pct,
                row.memory_pct,
                row.encoder_pct,
                row.decoder_pct,
                row.memory_mb
            )
            .unwrap();
        }
        assert!(!got.is_empty(), "{name}");
        is_as_expected("pmon", &name, &got);
    }
}

#[test]
fn a_dash_is_nothing_and_a_zero_is_zero() {
    let header =
        "# gpu         pid   type     sm    mem    enc    dec    jpg    ofa     fb   ccpm    command\n";
    let text = format!(
        "{header}    0       77   M+C      0      -    101      x      -      -   5830      0    a b c\n"
    );
    let row = &parse_pmon(&text)[0];
    assert_eq!((row.sm_pct, row.memory_pct, row.encoder_pct, row.decoder_pct), (Some(0.0), None, None, None));
    assert_eq!((row.memory_mb, row.name.as_str(), row.kind), (Some(5830), "a b c", ProcessKind::Compute));
    let idle = format!(
        "{header}    3          -     -      -      -      -      -      -      -      -      -    -\n"
    );
    assert_eq!((parse_pmon(&idle)[0].gpu, parse_pmon(&idle)[0].pid), (3, None));
    assert!(parse_pmon("No devices were found\n").is_empty());
    assert!(parse_pmon("0 1 C 1 1 1 1 x\n").is_empty(), "without a header nothing is known");
}

proptest! {
    #[test]
    fn no_text_panics(text in "(?s).{0,300}", body in "[-0-9CG+ \n#a-z]{0,300}") {
        parse_pmon(&text);
        parse_pmon(&format!("# gpu pid type sm mem enc dec command\n{body}"));
    }
}
