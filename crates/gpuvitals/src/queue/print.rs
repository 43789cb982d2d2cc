//! Statistics and dead letters as aligned tables.

use gpuvitals_core::quantity::counted;
use serde_json::Value;

use crate::table::{aligned, text};

/// Columns of a topic: heading, and field.
const TOPIC: [(&str, &str); 10] = [
    ("MESSAGES", "messages"),
    ("FRAMES", "frames"),
    ("BYTES", "bytes"),
    ("IN/S", "throughput_msg_per_sec"),
    ("ACKED/S", "acked_msg_per_sec"),
    ("READERS", "subscribers"),
    ("REDELIVERED", "redelivered"),
    ("REFUSED", "refused"),
    ("DROPPED", "dropped"),
    ("DEAD", "dead_letters"),
];
/// Columns of a group.
const GROUP: [(&str, &str); 6] = [
    ("MEMBERS", "members"),
    ("LAG", "lag"),
    ("IN FLIGHT", "in_flight"),
    ("WAITING", "waiting"),
    ("REDELIVERED", "redelivered"),
    ("ACKED", "acked"),
];

/// Names, one a line.
pub(super) fn topics(answer: &Value) -> String {
    let names = answer["topics"].as_array().into_iter().flatten();
    names.flat_map(|name| [text(name), "\n".to_owned()]).collect()
}

/// All topics and their groups.
pub(super) fn stats(answer: &Value) -> String {
    let topics: Vec<(&String, &Value)> = answer["topics"].as_object().into_iter().flatten().collect();
    let foot = match answer["uptime_seconds"].as_u64() {
        Some(up) => {
            let acked = &answer["total_processed"];
            let acked = acked
                .as_u64()
                .map_or_else(|| format!("{} messages", text(acked)), |acked| counted(acked, "message"));
            format!("{acked} acknowledged, up {}\n", span(up))
        }
        None => "NATS counts frames, not messages\n".to_owned(),
    };
    if topics.is_empty() {
        return format!("no topic yet\n\n{foot}");
    }
    format!("{}\n{foot}", tables(&topics))
}

/// One topic and its groups.
pub(super) fn topic(name: &str, answer: &Value) -> String {
    tables(&[(&name.to_owned(), answer)])
}

fn tables(topics: &[(&String, &Value)]) -> String {
    let plain = |name: &str| text(&Value::from(name));
    let mut rows = vec![head(&["TOPIC"], &TOPIC)];
    let mut groups = vec![head(&["TOPIC", "GROUP"], &GROUP)];
    for (name, topic) in topics {
        let mut row = vec![plain(name)];
        row.extend(TOPIC.map(|(_, key)| match key {
            "bytes" => topic[key].as_u64().map_or_else(|| text(&topic[key]), size),
            _ => topic[key].as_f64().filter(|_| !topic[key].is_u64()).map_or_else(|| text(&topic[key]), rate),
        }));
        rows.push(row);
        for (group, numbers) in topic["groups"].as_object().into_iter().flatten() {
            let mut row = vec![plain(name), plain(group)];
            row.extend(GROUP.map(|(_, key)| text(&numbers[key])));
            groups.push(row);
        }
    }
    let groups = if groups.len() > 1 { format!("\n{}", aligned(&groups)) } else { String::new() };
    aligned(&rows) + &groups
}

/// Dead letters of topics, each with its topic.
pub(super) fn letters(letters: &[(String, Value)]) -> String {
    if letters.is_empty() {
        return "no dead letters\n".to_owned();
    }
    let names = ["TOPIC", "ID", "GROUP", "OFFSET", "MESSAGES", "TRIES", "DIED", "REASON"];
    let mut rows = vec![names.map(str::to_owned).to_vec()];
    for (topic, letter) in letters {
        let mut row = vec![text(&Value::from(topic.as_str()))];
        let keys = ["id", "group", "offset", "messages_count", "attempts", "died_at", "reason"];
        row.extend(keys.map(|key| text(&letter[key])));
        rows.push(row);
    }
    aligned(&rows)
}

fn head(names: &[&str], columns: &[(&str, &str)]) -> Vec<String> {
    let columns = columns.iter().map(|(heading, _)| *heading);
    names.iter().copied().chain(columns).map(str::to_owned).collect()
}

fn rate(number: f64) -> String {
    if number < 10.0 { format!("{number:.1}") } else { format!("{number:.0}") }
}

fn size(bytes: u64) -> String {
    let units = [("GiB", 1_u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match units.into_iter().find(|(_, unit)| bytes >= *unit) {
        None => format!("{bytes} B"),
        Some((name, unit)) => {
            let tenths = bytes.saturating_mul(10) / unit;
            format!("{}.{} {name}", tenths / 10, tenths % 10)
        }
    }
}

/// A time in its two largest units.
fn span(seconds: u64) -> String {
    let units = [("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)];
    let mut left = seconds;
    let mut parts = Vec::new();
    for (name, unit) in units {
        if left >= unit {
            parts.push(format!("{}{name}", left / unit));
            left %= unit;
        }
    }
    parts.truncate(2);
    if parts.is_empty() { "0s".to_owned() } else { parts.join(" ") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn statistics_are_aligned_tables() {
        let group =
            json!({"members": 2, "lag": 120, "in_flight": 20, "waiting": 1, "redelivered": 3, "acked": 880});
        let topic = json!({
            "messages": 120, "frames": 12, "bytes": 13_212, "throughput_msg_per_sec": 1234.56, "acked_msg_per_sec": 0.0,
            "subscribers": 2, "redelivered": 3, "refused": 0, "dropped": 0, "dead_letters": 4,
            "groups": {"store": group},
        });
        let bare = json!({"messages": 1, "bytes": 300, "throughput_msg_per_sec": 0.25, "groups": {}});
        let answer = json!({
            "topics": {"gpu-telemetry": topic, "x\u{1b}[2J": bare}, "total_processed": 880, "uptime_seconds": 93_784
        });
        let wanted = "\
TOPIC          MESSAGES  FRAMES  BYTES     IN/S  ACKED/S  READERS  REDELIVERED  REFUSED  DROPPED  DEAD
gpu-telemetry  120       12      12.9 KiB  1235  0.0      2        3            0        0        4
x\u{fffd}[2J          1         -       300 B     0.2   -        -        -            -        -        -

TOPIC          GROUP  MEMBERS  LAG  IN FLIGHT  WAITING  REDELIVERED  ACKED
gpu-telemetry  store  2        120  20         1        3            880

880 messages acknowledged, up 1d 2h
";
        assert_eq!(stats(&answer), wanted);
        assert_eq!(
            stats(&json!({"topics": {}, "total_processed": 0, "uptime_seconds": 0})),
            "no topic yet\n\n0 messages acknowledged, up 0s\n"
        );
        assert_eq!(
            stats(&json!({"topics": {}, "total_processed": 1, "uptime_seconds": 0})),
            "no topic yet\n\n1 message acknowledged, up 0s\n"
        );
    }
}
