//! Fields of the tables, by the kernel's names.

macro_rules! fields {
    ($($(#[doc = $doc:literal])+ $field:ident $name:literal,)+) => {
        /// A value of the table. The numbers are the driver's: their unit depends on the version, and is
        /// documented here.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Field { $($(#[doc = $doc])+ $field,)+ }

        impl Field {
            /// Every field, in the order of the enum.
            pub const ALL: &[Self] = &[$(Self::$field,)+];

            /// The kernel's name of it, as in `kgd_pp_interface.h`.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$field => $name,)+ }
            }
        }
    };
}

fields! {
    // Temperatures of v1.x, degrees Celsius.
    /// Edge of the die, °C. v1.0 to 1.3; not filled on MI300.
    TemperatureEdge "temperature_edge",
    /// Hottest spot (junction), °C. v1.x.
    TemperatureHotspot "temperature_hotspot",
    /// Memory, °C. v1.x.
    TemperatureMem "temperature_mem",
    /// Voltage regulator of the shader engines, °C. v1.0 to 1.3.
    TemperatureVrgfx "temperature_vrgfx",
    /// Voltage regulator of the SoC, °C. v1.x.
    TemperatureVrsoc "temperature_vrsoc",
    /// Voltage regulator of the memory, °C. v1.0 to 1.3.
    TemperatureVrmem "temperature_vrmem",
    /// Each HBM stack, °C. v1.1 to 1.3 (filled on MI200 only), v1.9.
    TemperatureHbm "temperature_hbm",

    // Temperatures of APUs, hundredths of a degree Celsius.
    /// Graphics, 0.01 °C. v2.x, v3.0.
    TemperatureGfx "temperature_gfx",
    /// SoC, 0.01 °C. v2.x, v3.0.
    TemperatureSoc "temperature_soc",
    /// Each CPU core, 0.01 °C. v2.x, v3.0.
    TemperatureCore "temperature_core",
    /// Case, 0.01 °C. v3.0.
    TemperatureSkin "temperature_skin",

    // Activity.
    /// Shader engines, percent; in v2.x of some APUs 0.01 percent, so their `gpu_busy_percent` is the better source.
    AverageGfxActivity "average_gfx_activity",
    /// Memory controller, percent. v1.x.
    AverageUmcActivity "average_umc_activity",
    /// Media engines, percent (v2.x: as [`Field::AverageGfxActivity`]). v1.0 to 1.3, v2.x.
    AverageMmActivity "average_mm_activity",
    /// Each video engine, percent. v1.4, 1.5, early 1.6.
    VcnActivity "vcn_activity",
    /// Each JPEG engine, percent. v1.5, early 1.6.
    JpegActivity "jpeg_activity",
    /// Video engine, percent. v3.0.
    AverageVcnActivity "average_vcn_activity",
    /// Sum of the shader engines' activity, percent times the firmware's sampling steps; wraps at 32 bits. v1.1 to 1.9.
    GfxActivityAcc "gfx_activity_acc",
    /// Sum of the memory controller's activity, as [`Field::GfxActivityAcc`]. v1.1 to 1.9.
    MemActivityAcc "mem_activity_acc",

    // Power and energy.
    /// Whole package, filtered: W in v1.0 to 1.3; mW in v2.x (W in the firmware of Renoir, Lucienne and Cezanne), v3.0.
    AverageSocketPower "average_socket_power",
    /// Whole package, at the moment, W. v1.4 to 1.9.
    CurrentSocketPower "curr_socket_power",
    /// CPU rail, mW: `Power[0]` of the firmware's table (VDDCR_VDD). v2.x.
    AverageCpuPower "average_cpu_power",
    /// SoC rail, mW: `Power[1]` of the firmware's table (VDDCR_SOC). v2.x.
    AverageSocPower "average_soc_power",
    /// Graphics, mW. v2.x, v3.0.
    AverageGfxPower "average_gfx_power",
    /// Each CPU core, mW. v2.x, v3.0.
    AverageCorePower "average_core_power",
    /// All CPU cores, filtered, mW. v3.0.
    AverageAllCorePower "average_all_core_power",
    /// The APU without a discrete GPU that shares its budget, filtered, mW. v3.0.
    AverageApuPower "average_apu_power",
    /// Energy since the driver was loaded: steps of 2^-16 J on MI100, MI200 and MI300; elsewhere not documented. v1.x.
    EnergyAccumulator "energy_accumulator",

    // Clocks, MHz.
    /// Shader clock, filtered, MHz. v1.0 to 1.3, v2.x, v3.0.
    AverageGfxclk "average_gfxclk_frequency",
    /// SoC clock, filtered, MHz. v1.0 to 1.3, v2.x, v3.0.
    AverageSocclk "average_socclk_frequency",
    /// Memory clock, filtered, MHz. v1.0 to 1.3, v2.x, v3.0.
    AverageUclk "average_uclk_frequency",
    /// Fabric clock, filtered, MHz. v2.x, v3.0.
    AverageFclk "average_fclk_frequency",
    /// Video clock, filtered, MHz. v2.x, v3.0.
    AverageVclk "average_vclk_frequency",
    /// Decoder clock, filtered, MHz. v2.x.
    AverageDclk "average_dclk_frequency",
    /// Shader clock, MHz. One in v1.0 to 1.3 and v2.x; each XCD in v1.4 to 1.9.
    CurrentGfxclk "current_gfxclk",
    /// SoC clock, MHz. One in v1.0 to 1.3 and v2.x; each AID in v1.4 to 1.9.
    CurrentSocclk "current_socclk",
    /// Memory clock, MHz. v1.x, v2.x.
    CurrentUclk "current_uclk",
    /// Video clock, MHz. One in v1.0 to 1.3; each AID in v1.4 to 1.9.
    CurrentVclk0 "current_vclk0",
    /// Decoder clock, MHz. One in v1.0 to 1.3; each AID in v1.4 to 1.9.
    CurrentDclk0 "current_dclk0",
    /// Video clock of the second engine, MHz. v1.0 to 1.3.
    CurrentVclk1 "current_vclk1",
    /// Decoder clock of the second engine, MHz. v1.0 to 1.3.
    CurrentDclk1 "current_dclk1",
    /// Fabric clock, MHz. v2.x.
    CurrentFclk "current_fclk",
    /// Video clock, MHz. v2.x.
    CurrentVclk "current_vclk",
    /// Decoder clock, MHz. v2.x.
    CurrentDclk "current_dclk",
    /// Bit per XCD: its clock is locked. v1.4 to 1.9.
    GfxclkLockStatus "gfxclk_lock_status",

    // Voltages and currents.
    /// SoC, mV. v1.3.
    VoltageSoc "voltage_soc",
    /// Shader engines, mV. v1.3.
    VoltageGfx "voltage_gfx",
    /// Memory, mV. v1.3.
    VoltageMem "voltage_mem",

    // Throttling.
    /// Bits whose meaning depends on the chip. v1.0 to 1.5, early 1.6, v2.x.
    ThrottleStatus "throttle_status",
    /// Bits that mean the same on every chip: 0-15 power, 16-31 current, 32-47 temperature. v1.3, v2.2 to 2.4.
    IndepThrottleStatus "indep_throttle_status",
    /// The firmware's steps so far: what the residencies of v1.6 to 1.9 are shares of; wraps at 32 bits.
    AccumulationCounter "accumulation_counter",
    /// Steps under PROCHOT; wraps at 32 bits. v1.6 to 1.9.
    ProchotResidencyAcc "prochot_residency_acc",
    /// Steps under the package power limit; wraps at 32 bits. v1.6 to 1.9.
    PptResidencyAcc "ppt_residency_acc",
    /// Steps under the socket's temperature limit; wraps at 32 bits. v1.6 to 1.9.
    SocketThmResidencyAcc "socket_thm_residency_acc",
    /// Steps under the voltage regulators' temperature limit; wraps at 32 bits. v1.6 to 1.9.
    VrThmResidencyAcc "vr_thm_residency_acc",
    /// Steps under the HBM's temperature limit; wraps at 32 bits. v1.6 to 1.9.
    HbmThmResidencyAcc "hbm_thm_residency_acc",
    /// Steps under PROCHOT; wraps at 32 bits. v3.0.
    ThrottleResidencyProchot "throttle_residency_prochot",
    /// Steps under the sustained power limit; wraps at 32 bits. v3.0.
    ThrottleResidencySpl "throttle_residency_spl",
    /// Steps under the fast package power limit; wraps at 32 bits. v3.0.
    ThrottleResidencyFppt "throttle_residency_fppt",
    /// Steps under the slow package power limit; wraps at 32 bits. v3.0.
    ThrottleResidencySppt "throttle_residency_sppt",
    /// Steps under the cores' temperature limit; wraps at 32 bits. v3.0.
    ThrottleResidencyThmCore "throttle_residency_thm_core",
    /// Steps under the graphics' temperature limit; wraps at 32 bits. v3.0.
    ThrottleResidencyThmGfx "throttle_residency_thm_gfx",
    /// Steps under the SoC's temperature limit; wraps at 32 bits. v3.0.
    ThrottleResidencyThmSoc "throttle_residency_thm_soc",

    // Memory and links.
    /// Highest memory bandwidth possible, GB/s. v1.7 to 1.9.
    MemMaxBandwidth "mem_max_bandwidth",
    /// Read from DRAM, filtered, MB/s. v3.0.
    AverageDramReads "average_dram_reads",
    /// Written to DRAM, filtered, MB/s. v3.0.
    AverageDramWrites "average_dram_writes",
    /// Lanes of PCIe. v1.x.
    PcieLinkWidth "pcie_link_width",
    /// Speed of PCIe, 0.1 GT/s. v1.x.
    PcieLinkSpeed "pcie_link_speed",
    /// Sum over PCIe; different headers give different units (GB/s, Mb/s). v1.4 to 1.9.
    PcieBandwidthAcc "pcie_bandwidth_acc",
    /// Over PCIe at the moment; unit as [`Field::PcieBandwidthAcc`]. v1.4 to 1.9.
    PcieBandwidthInst "pcie_bandwidth_inst",
    /// Times the link went from L0 to recovery. v1.4 to 1.9.
    PcieL0ToRecovCountAcc "pcie_l0_to_recov_count_acc",
    /// Packets sent again. v1.4 to 1.9.
    PcieReplayCountAcc "pcie_replay_count_acc",
    /// Times the replay counter overflowed. v1.4 to 1.9.
    PcieReplayRoverCountAcc "pcie_replay_rover_count_acc",
    /// NAKs sent; wraps at 32 bits. v1.5 to 1.9.
    PcieNakSentCountAcc "pcie_nak_sent_count_acc",
    /// NAKs received; wraps at 32 bits. v1.5 to 1.9.
    PcieNakRcvdCountAcc "pcie_nak_rcvd_count_acc",
    /// Recoveries that the other end asked for; wraps at 32 bits. v1.6 to 1.9.
    PcieLcPerfOtherEndRecovery "pcie_lc_perf_other_end_recovery",
    /// Lanes of an XGMI link. v1.4 to 1.9.
    XgmiLinkWidth "xgmi_link_width",
    /// Speed of an XGMI link, Gb/s. v1.4 to 1.9.
    XgmiLinkSpeed "xgmi_link_speed",
    /// Read over each XGMI link so far, KB. v1.4 to 1.9.
    XgmiReadDataAcc "xgmi_read_data_acc",
    /// Written over each XGMI link so far, KB. v1.4 to 1.9.
    XgmiWriteDataAcc "xgmi_write_data_acc",
    /// Each XGMI link: 1 up, 0 down. v1.7 to 1.9.
    XgmiLinkStatus "xgmi_link_status",

    // Time.
    /// When the driver filled the table, ns of its monotonic clock: the same again is the same snapshot. All versions.
    SystemClockCounter "system_clock_counter",
    /// When the firmware took the values, steps of 10 ns. v1.2 to 1.9.
    FirmwareTimestamp "firmware_timestamp",

    // Partitions (XCPs): asked for by partition.
    /// Partitions that the package is split into. v1.6 to 1.9.
    NumPartition "num_partition",
    /// Busy share of each XCD of a partition, percent. v1.6 to 1.9.
    XcpGfxBusyInst "gfx_busy_inst",
    /// Busy share of each JPEG engine of a partition, percent. v1.6 to 1.9.
    XcpJpegBusy "jpeg_busy",
    /// Busy share of each video engine of a partition, percent. v1.6 to 1.9.
    XcpVcnBusy "vcn_busy",
    /// Sum of the busy share of each XCD of a partition, percent times steps. v1.6 to 1.9.
    XcpGfxBusyAcc "gfx_busy_acc",
    /// Steps below the host's clock limit, each XCD of a partition. v1.7.
    XcpGfxBelowHostLimitAcc "gfx_below_host_limit_acc",
    /// Steps below the host's clock limit for power, each XCD of a partition. v1.8, 1.9.
    XcpGfxBelowHostLimitPptAcc "gfx_below_host_limit_ppt_acc",
    /// Steps below the host's clock limit for temperature, each XCD of a partition. v1.8, 1.9.
    XcpGfxBelowHostLimitThmAcc "gfx_below_host_limit_thm_acc",
    /// Steps of low utilization, each XCD of a partition. v1.8, 1.9.
    XcpGfxLowUtilizationAcc "gfx_low_utilization_acc",
    /// Steps below the host's clock limit for any reason, each XCD of a partition. v1.8, 1.9.
    XcpGfxBelowHostLimitTotalAcc "gfx_below_host_limit_total_acc",
}
