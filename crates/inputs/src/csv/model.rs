//! Names of models of GPUs, as far as a text shows that it is one.

/// Words that names of GPUs have.
const WORDS: [&str; 37] = [
    "nvidia", "amd", "intel", "geforce", "rtx", "gtx", "quadro", "tesla", "titan", "radeon", "instinct",
    "firepro", "vega", "navi", "graphics", "iris", "uhd", "arc", "flex", "gaudi", "habana", "jetson", "orin",
    "xavier", "tegra", "thor", "ascend", "mlu370", "mtt", "biren", "adreno", "mali", "apple", "grid", "ati",
    "matrox", "hygon",
];

/// Numbers of models without a word, behind which letters may follow: `A10G`, `L40S`, `H100PCIE`.
const NUMBERS: [&str; 61] = [
    "a2", "a10", "a16", "a30", "a40", "a100", "a800", "a1000", "a2000", "a3000", "a4000", "a4500", "a5000",
    "a5500", "a6000", "b100", "b200", "b300", "gb10", "gb200", "gb300", "gh200", "h20", "h100", "h200",
    "h800", "l2", "l4", "l20", "l40", "t4", "t400", "t600", "t1000", "t2000", "v100", "p4", "p6", "p40",
    "p100", "p1000", "p2000", "p4000", "p5000", "p6000", "k10", "k20", "k40", "k80", "m4", "m6", "m10",
    "m40", "m60", "910b", "910c", "w6800", "w7900", "w6600", "w5700", "w7800",
];

/// Letters before a number that only GPUs have: `gfx90a`, `MI300X`, `RX7900`.
const SERIES: [&str; 6] = ["gfx", "mi", "rx", "rtx", "gtx", "max"];

/// Longest letters behind the number of a model.
const SUFFIX_LEN_MAX: usize = 4;

/// Whether a text shows that it is the model of a GPU.
pub(super) fn names_gpu(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let mut words = lower.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.any(|word| WORDS.contains(&word) || is_number(word) || is_of_series(word))
}

fn is_number(word: &str) -> bool {
    NUMBERS.iter().any(|number| {
        word.strip_prefix(number).is_some_and(|suffix| {
            suffix.len() <= SUFFIX_LEN_MAX && suffix.bytes().all(|byte| byte.is_ascii_lowercase())
        })
    })
}

fn is_of_series(word: &str) -> bool {
    SERIES.iter().any(|series| {
        word.strip_prefix(series).is_some_and(|rest| {
            (2..=8).contains(&rest.len())
                && rest.starts_with(|c: char| c.is_ascii_digit())
                && rest.bytes().filter(u8::is_ascii_digit).count() >= 2
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_of_gpus_are_told_from_other_models() {
        for model in [
            "RTX 4090",
            "A100",
            "NVIDIA A100-SXM4-80GB",
            "Tesla V100",
            "T4",
            "A10G",
            "L40S",
            "GTX 1080 Ti",
            "RTX A6000",
            "Arc A770",
            "gfx90a",
            "gfx1100",
            "MI300X",
            "Radeon RX 7900",
            "Orin",
            "Intel(R) Data Center GPU Max 1550",
            "H100PCIE",
            "K80",
            "GB200",
        ] {
            assert!(names_gpu(model), "{model}");
        }
        for name in [
            "llama3:8b",
            "llama3-8b",
            "mistral-7b-instruct",
            "gpt-4o",
            "gpt2",
            "t5-large",
            "resnet50",
            "vgg16",
            "stable-diffusion-xl",
            "qwen2.5-72b",
            "whisper",
            "g",
            "left",
            "rack/1",
            "gemma-2b",
            "bert-base",
        ] {
            assert!(!names_gpu(name), "{name}");
        }
    }
}
