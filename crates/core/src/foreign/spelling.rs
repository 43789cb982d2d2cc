//! The words of foreign names, and one spelling for those that mean the same.

/// The words of a name in lower case; units keep their signs.
pub(super) fn words(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut word = String::new();
    let mut before = ' ';
    for c in name.chars() {
        let is_hump = before.is_ascii_lowercase() && c.is_ascii_uppercase() && word.len() > 1;
        let begins = is_hump || (c.is_ascii_digit() && is_numbered(&word));
        if begins && !word.is_empty() {
            words.push(std::mem::take(&mut word));
        }
        // `util%`, `temp°C`.
        if matches!(c, '%' | '°') && !word.is_empty() {
            words.push(std::mem::take(&mut word));
        }
        if c.is_alphanumeric() || c == '%' || c == '°' || c == 'µ' {
            word.extend(c.to_lowercase());
        } else if !word.is_empty() {
            words.push(std::mem::take(&mut word));
        }
        before = c;
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

/// Words that a number may follow without a blank.
pub(super) fn is_numbered(word: &str) -> bool {
    const WORDS: [&str; 10] =
        ["gpu", "gpus", "card", "cuda", "device", "dev", "gcd", "accelerator", "nvidia", "rank"];
    WORDS.contains(&word)
}

/// Words of names, and what they are in the spelling of the terms: nothing for those that say nothing.
const SPELLINGS: &[(&[&str], &[&str])] = &[
    (
        &["gpu", "gpus", "nvidia", "nvml", "cuda", "amd", "rocm", "amdgpu", "radeon", "nv", "accelerator"],
        &["gpu"],
    ),
    (
        &[
            "smi",
            "all",
            "draw",
            "consumption",
            "consumed",
            "verbrauch",
            "consommation",
            "current",
            "curr",
            "cur",
            "now",
            "value",
        ],
        &[],
    ),
    (
        &[
            "reading", "sensor", "of", "the", "in", "device", "dev", "card", "board", "package", "socket",
            "rate",
        ],
        &[],
    ),
    (&["graphicspackage", "metrics", "stats", "de", "du", "des", "del", "der", "la", "le"], &[]),
    (&["memory", "mem", "speicher", "arbeitsspeicher", "memoria", "memória", "mémoire", "memoire"], &["mem"]),
    (&["vram", "fb", "framebuffer"], &["gpu", "mem"]),
    (&["ram"], &["ram"]),
    (
        &[
            "allocated",
            "used",
            "inuse",
            "occupied",
            "belegt",
            "genutzt",
            "verwendet",
            "utilisée",
            "utilisee",
            "usada",
            "utilizada",
            "usata",
        ],
        &["used"],
    ),
    (&["total", "capacity", "gesamt", "totale"], &["total"]),
    (&["free", "frei", "libre"], &["free"]),
    (&["available", "avail"], &["available"]),
    (&["reserved"], &["reserved"]),
    (&["utilization", "utilisation", "util", "use", "activity", "auslastung", "utilización"], &["util"]),
    (&["usage", "uso"], &["usage"]),
    (&["busy"], &["busy"]),
    (&["load", "carga"], &["load"]),
    (&["loadavg"], &["load", "average"]),
    (
        &["temperature", "temp", "temps", "temperatures", "temperatur", "temperatura", "température"],
        &["temp"],
    ),
    (
        &[
            "power",
            "pwr",
            "powerdraw",
            "powerusage",
            "powerconsumption",
            "boardpower",
            "tbp",
            "tgp",
            "leistung",
            "leistungsaufnahme",
            "stromverbrauch",
            "puissance",
            "potencia",
            "potência",
            "potenza",
        ],
        &["power"],
    ),
    (&["energy", "energie", "energieverbrauch", "energía", "energia", "énergie"], &["energy"]),
    (
        &["clock", "clocks", "clk", "freq", "frequency", "takt", "frequenz", "fréquence", "frecuencia"],
        &["clock"],
    ),
    (&["graphics", "graphic", "gfx", "core", "gr"], &["gfx"]),
    (&["sclk", "gfxclk", "gpuclk"], &["clock", "gfx"]),
    (&["mclk", "memclk", "uclk"], &["clock", "mem"]),
    (&["smclk"], &["clock", "sm"]),
    (&["socclk"], &["clock", "soc"]),
    (&["fclk"], &["clock", "fabric"]),
    (&["fabric"], &["fabric"]),
    (&["sm"], &["sm"]),
    (&["compute"], &["compute"]),
    (&["video"], &["video"]),
    (&["soc"], &["soc"]),
    (&["encoder", "enc", "nvenc"], &["enc"]),
    (&["decoder", "dec", "nvdec"], &["dec"]),
    (&["jpeg", "jpg", "nvjpg"], &["jpeg"]),
    (&["ofa"], &["ofa"]),
    (&["media"], &["media"]),
    (&["vcn"], &["vcn"]),
    (&["umc"], &["umc"]),
    (&["controller"], &["controller"]),
    (&["bandwidth", "bw", "throughput"], &["bandwidth"]),
    (&["edge"], &["edge"]),
    (&["junction"], &["junction"]),
    (&["hotspot"], &["hot", "spot"]),
    (&["hot"], &["hot"]),
    (&["spot"], &["spot"]),
    (&["die"], &["die"]),
    (&["hbm"], &["hbm"]),
    (&["slowdown"], &["slowdown"]),
    (&["shutdown"], &["shutdown"]),
    (&["limit", "cap", "grenze"], &["limit"]),
    (&["enforced"], &["enforced"]),
    (&["default"], &["default"]),
    (&["management"], &["management"]),
    (&["max", "maximum"], &["max"]),
    (&["average", "avg"], &["average"]),
    (&["instant", "instantaneous"], &["instant"]),
    (&["asic"], &["asic"]),
    (&["accumulated", "accum"], &["accumulated"]),
    (&["counter"], &["counter"]),
    (&["fan", "fans", "fan1", "lüfter", "ventilateur", "ventilador"], &["fan"]),
    (&["speed", "drehzahl"], &["speed"]),
    (&["voltage", "spannung", "tension"], &["voltage"]),
    (&["pcie", "pci"], &["pcie"]),
    (&["nvlink"], &["nvlink"]),
    (&["xgmi"], &["xgmi"]),
    (&["tx", "transmitted", "sent"], &["tx"]),
    (&["rx", "received"], &["rx"]),
    (&["replay", "replays"], &["replay"]),
    (&["count"], &["count"]),
    (&["performance"], &["performance"]),
    (&["pstate"], &["performance", "state"]),
    (&["state"], &["state"]),
    (&["cpu", "cpus"], &["cpu"]),
    (&["host"], &["host"]),
    (&["user"], &["user"]),
    (&["sys", "system"], &["sys"]),
    (&["iowait"], &["iowait"]),
    (&["swap"], &["swap"]),
    (&["1min", "1m"], &["1m"]),
    (&["5min", "5m"], &["5m"]),
    (&["15min", "15m"], &["15m"]),
    (&["1"], &["1"]),
    (&["5"], &["5"]),
    (&["15"], &["15"]),
];

/// A word in the spelling of the terms; none for one that says nothing.
pub(super) fn spelled(word: &str) -> &'static [&'static str] {
    // A word that no term has.
    const STRANGE: &[&str] = &["?"];
    SPELLINGS.iter().find(|(words, _)| words.contains(&word)).map_or(STRANGE, |(_, parts)| parts)
}
