//! Series may go by the names of another exporter, too.

/// The dcgm-exporter dialects to write as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compat {
    /// No other names.
    Off,
    /// That of 4.9 on: base units, `hostname`.
    Dcgm,
    /// That up to 4.8: MHz, %, MiB, `Hostname`.
    DcgmLegacy,
    /// Both, for a migration.
    Both,
}
