/** The columns that every GPU tool shows first. The catalogue has many more; lists and tiles have room for these. */
export const UTILIZATION = "utilization_pct";
export const POWER = "power_w";
export const POWER_LIMIT = "power_limit_w";
export const ENERGY = "energy_mj";
export const TEMPERATURE = "temperature_c";
export const MEMORY_USED = "memory_used_mb";
export const MEMORY_TOTAL = "memory_total_mb";

/** How a GPU is linked: counts and generations, without a unit. */
export const PCIE_WIDTH = "pcie_width";
export const PCIE_WIDTH_MAX = "pcie_width_max";
export const PCIE_GEN = "pcie_gen";
export const PCIE_GEN_MAX = "pcie_gen_max";
export const LINKS_UP = "interconnect_links_up";

/** Of hosts. */
export const HOST_CPU = "cpu_pct";
export const HOST_MEMORY_TOTAL = "host_memory_total_mb";
export const HOST_MEMORY_AVAILABLE = "host_memory_available_mb";

/** Temperatures beside the headline's that have a limit of their own. */
export const TEMPERATURE_JUNCTION = "temperature_junction_c";
export const TEMPERATURE_MEMORY = "temperature_memory_c";
