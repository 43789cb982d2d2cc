//! The output of `rocm-smi`, as JSON and as text, of any version: cards with texts by key.
//!
//! JSON is an object `card0`, `card1` … and sometimes `system`; all values are strings. Text is a line
//! `GPU[0]<tabs>: key: value` a value, between headings. In both, warnings come before and after, and keys
//! differ by version in case and in a trailing colon; here they are lower-case and without it.

use std::collections::BTreeMap;

use serde_json::Value;

/// Most cards that are taken; a node of 8 packages in 8 partitions each has 64.
pub const CARDS_MAX: usize = 256;
/// Opening braces at which the JSON is looked for: warnings may have some.
const STARTS_MAX: usize = 16;

/// One answer of the tool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RocmReport {
    /// Version of the amdgpu driver, if requested.
    pub driver: Option<String>,
    /// In the order of the tool's numbers, each once.
    pub cards: Vec<RocmCard>,
}

/// The texts of one card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RocmCard {
    /// The tool's own number, not always that of DRM.
    pub number: u32,
    texts: BTreeMap<String, String>,
}

impl RocmCard {
    /// The value of a key (lower-case, without colon at its end), as printed.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.texts.get(key).map(String::as_str)
    }
}

/// Reads the first JSON object that holds a card, anywhere in the output. None if there is none: the tool
/// died before it printed it, or does not support JSON. Entries that are not text or numbers are left out,
/// and spoil nothing else.
pub fn parse_json(output: &[u8]) -> Option<RocmReport> {
    let starts = memchr::memchr_iter(b'{', output).take(STARTS_MAX);
    starts.filter_map(|start| report_at(output.get(start..)?)).find(|report| !report.cards.is_empty())
}

fn report_at(json: &[u8]) -> Option<RocmReport> {
    let mut documents = serde_json::Deserializer::from_slice(json).into_iter::<BTreeMap<String, Value>>();
    let object = documents.next()?.ok()?;
    let mut report = Gathered::default();
    for (name, value) in object {
        let Value::Object(entries) = value else { continue };
        let number = name.strip_prefix("card").and_then(card_number);
        for (key, value) in entries {
            let text = match value {
                Value::String(text) => text,
                Value::Number(number) => number.to_string(),
                _ => continue,
            };
            report.add(number, &key, &text);
        }
    }
    Some(report.into())
}

/// Reads the lines that say something of a card; all others are left out.
pub fn parse_text(output: &str) -> RocmReport {
    let mut report = Gathered::default();
    for line in output.lines() {
        let line = line.trim();
        let about_card = line.strip_prefix("GPU[").and_then(|rest| {
            let (number, rest) = rest.split_once(']')?;
            Some((card_number(number)?, rest.trim_start().strip_prefix(':')?))
        });
        let (number, entry) = match about_card {
            Some((number, entry)) => (Some(number), entry),
            None => (None, line),
        };
        if let Some((key, text)) = entry.split_once(": ") {
            report.add(number, key, text);
        }
    }
    report.into()
}

fn card_number(digits: &str) -> Option<u32> {
    digits.parse::<u16>().ok().map(u32::from)
}

#[derive(Default)]
struct Gathered {
    driver: Option<String>,
    cards: BTreeMap<u32, BTreeMap<String, String>>,
}

impl Gathered {
    /// Of two values of a key the first holds.
    fn add(&mut self, card: Option<u32>, key: &str, text: &str) {
        let key = key.trim().trim_end_matches(':').trim_end().to_ascii_lowercase();
        let text = text.trim();
        match card {
            None if key == "driver version" => self.driver = Some(text.to_owned()),
            Some(number) if self.cards.len() < CARDS_MAX || self.cards.contains_key(&number) => {
                let texts = self.cards.entry(number).or_default();
                texts.entry(key).or_insert_with(|| text.to_owned());
            }
            _ => {}
        }
    }
}

impl From<Gathered> for RocmReport {
    fn from(gathered: Gathered) -> Self {
        let cards = gathered.cards.into_iter().map(|(number, texts)| RocmCard { number, texts }).collect();
        Self { driver: gathered.driver, cards }
    }
}
