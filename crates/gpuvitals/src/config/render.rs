//! The settings as a file.

use std::fmt::Write as _;

use gpuvitals_settings::{SectionTable, Setting, text};
use serde_json::Value;

/// Sections as a file, each setting with its value and a comment.
pub(crate) fn render(sections: &[SectionTable], of: impl Fn(&Setting) -> (Value, String)) -> String {
    let mut file = String::new();
    for section in sections {
        let about = commented(&format!("{}:", section.name), section.about.trim());
        let lines = section.settings.iter().map(|setting| {
            let (value, comment) = of(setting);
            commented(&format!("  {}: {}", setting.key(), scalar(&value)), &comment)
        });
        let gap = if file.is_empty() { "" } else { "\n" };
        let _always = write!(file, "{gap}{about}{}", lines.collect::<String>());
    }
    file
}

/// A line with a comment beside it, which continues below.
fn commented(line: &str, comment: &str) -> String {
    const COLUMN: usize = 28;
    const WIDTH: usize = 95;
    let mut lines = vec![String::new()];
    for word in comment.split_whitespace() {
        match lines.last_mut() {
            Some(last) if last.len() + word.len() < WIDTH => {
                let gap = if last.is_empty() { "" } else { " " };
                let _always = write!(last, "{gap}{word}");
            }
            _ => lines.push(word.to_owned()),
        }
    }
    let begin = |at: usize| if at == 0 { line } else { "" };
    let beside = |(at, words): (usize, String)| format!("{:COLUMN$} # {words}\n", begin(at));
    if comment.is_empty() { format!("{line}\n") } else { lines.into_iter().enumerate().map(beside).collect() }
}

/// A value in YAML: a text without quotes if it is the same text without.
fn scalar(value: &Value) -> String {
    let is_plain = |text: &str| {
        let read = serde_saphyr::from_str::<Value>(text).ok();
        !text.is_empty() && read.is_some_and(|value| self::text(&value).is_ok_and(|it| it == text))
    };
    match value {
        Value::String(text) if is_plain(text) => text.clone(),
        other => other.to_string(),
    }
}
