//! Tables for people.

use std::borrow::Cow;
use std::io::IsTerminal;

use serde_json::Value;

/// A value of an answer, as text for a table.
pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        // Texts of foreign columns may contain terminal escapes.
        Value::String(text) => text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect(),
        other => other.to_string(),
    }
}

/// A number of an answer to two digits after the point; what is not known is a dash.
pub(crate) fn number(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"))
}

/// An instant of an answer, as text to the second.
pub(crate) fn instant(value: &Value) -> String {
    let shown = text(value);
    match shown.split_once('.') {
        Some((seconds, _)) => format!("{seconds}Z"),
        None => shown,
    }
}

/// Rows in columns as wide as their widest cell.
pub(crate) fn aligned(rows: &[Vec<String>]) -> String {
    with_numbers(rows, usize::MAX)
}

/// The same, with the columns from `first` on right-aligned: numbers.
pub(crate) fn with_numbers(rows: &[Vec<String>], first: usize) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns)
        .map(|c| rows.iter().filter_map(|row| row.get(c)).map(|t| t.chars().count()).max().unwrap_or(0))
        .collect();
    let mut out = String::new();
    for row in rows {
        let padded = |(at, (cell, width)): (usize, (&String, &usize))| {
            if at < first { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        };
        let cells: Vec<String> = row.iter().zip(&widths).enumerate().map(padded).collect();
        out.push_str(cells.join("  ").trim_end());
        out.push('\n');
    }
    out
}

/// What a column gives up in a terminal that is too narrow.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Yields {
    /// Its place: it is left out whole.
    Place,
    /// The ends of its texts, down to so many characters; then its place.
    Ends(usize),
    /// The same of the middles of its texts: ids, and names of machines, often differ in their ends alone.
    Middles(usize),
}

impl Yields {
    /// A text in at most so many characters, with `…` in place of what it gives up.
    fn cut(self, text: &str, len_max: usize) -> Cow<'_, str> {
        match self {
            Self::Place | Self::Ends(_) => shortened(text, len_max),
            Self::Middles(_) => without_middle(text, len_max),
        }
    }
}

/// Characters that a narrow terminal leaves of a name: pods of one job differ late in theirs.
const NAME_LEN: usize = 40;

/// Columns of which the first, a name, gives up its end, and the others their place from the right on.
pub(crate) fn after_a_name(count: usize) -> Vec<(u8, Yields)> {
    let rank = |at: usize| u8::try_from(at).unwrap_or(u8::MAX);
    (0..count).map(|at| (rank(at), if at == 0 { Yields::Ends(NAME_LEN) } else { Yields::Place })).collect()
}

/// Columns that are left out and named.
const NAMED_MAX: usize = 10;

/// Rows in columns, the first their heads, of which the terminal has room for those of the lowest ranks; and a line that names
/// the others. Without a width all are there.
pub(crate) fn narrowed(
    mut rows: Vec<Vec<String>>,
    columns: &[(u8, Yields)],
    width: Option<usize>,
) -> (String, String) {
    let Some(width) = width else { return (aligned(&rows), String::new()) };
    let widest = |at: usize| rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count()).max();
    let rooms: Vec<Option<Room>> = columns
        .iter()
        .enumerate()
        .map(|(at, (rank, yields))| {
            let most = widest(at).unwrap_or(0);
            let least = match yields {
                Yields::Place => most,
                Yields::Ends(least) | Yields::Middles(least) => most.min(*least),
            };
            Some(Room { rank: *rank, least, most })
        })
        .collect();
    let widths = fit(&rooms, 2, width);
    let heads = rows.first().into_iter().flatten().zip(&widths);
    let without: Vec<String> =
        heads.filter(|(_, width)| width.is_none()).map(|(head, _)| head.clone()).collect();
    for row in &mut rows {
        let cells = row.drain(..).zip(widths.iter().zip(columns));
        let cut = |(cell, (width, (_, yields))): (String, (&Option<usize>, &(u8, Yields)))| {
            Some(yields.cut(&cell, (*width)?).into_owned())
        };
        *row = cells.filter_map(cut).collect();
    }
    let which =
        if without.len() > NAMED_MAX { format!("{} columns", without.len()) } else { without.join(", ") };
    let remark = if without.is_empty() {
        String::new()
    } else {
        format!("… without {which}: a wider terminal, a pipe (| cat) or --json has them\n")
    };
    (aligned(&rows), remark)
}

/// The room that a column asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    /// Columns come in by rank, the lowest first.
    pub rank: u8,
    /// What it cannot do without.
    pub least: usize,
    /// What it has a use for.
    pub most: usize,
}

/// The widths of columns that stand in a line of this width with a gap between them; none for those that are left out.
/// They come in by rank until one does not fit, and what is left goes to them in the same order. What asks for nothing is
/// left out.
pub(crate) fn fit(columns: &[Option<Room>], gap: usize, width: usize) -> Vec<Option<usize>> {
    let mut by_rank: Vec<(usize, Room)> =
        columns.iter().enumerate().filter_map(|(at, room)| Some((at, (*room)?))).collect();
    by_rank.sort_by_key(|(_, room)| room.rank);
    let mut widths = vec![None; columns.len()];
    // Each brings a gap; the first needs none.
    let mut left = width + gap;
    let mut shown = Vec::new();
    for (at, room) in by_rank {
        let Some(rest) = left.checked_sub(room.least + gap) else { break };
        left = rest;
        shown.push((at, room));
    }
    for (at, room) in shown {
        let more = (room.most - room.least).min(left);
        left -= more;
        if let Some(width) = widths.get_mut(at) {
            *width = Some(room.least + more);
        }
    }
    widths
}

/// A text of at most so many characters; one that is longer ends with `…`.
pub(crate) fn shortened(text: &str, len_max: usize) -> Cow<'_, str> {
    if text.chars().count() <= len_max {
        return text.into();
    }
    let end = if len_max == 0 { "" } else { "…" };
    (text.chars().take(len_max.saturating_sub(1)).collect::<String>() + end).into()
}

/// A text of at most so many characters; one that is longer has `…` in place of its middle.
fn without_middle(text: &str, len_max: usize) -> Cow<'_, str> {
    let len = text.chars().count();
    if len <= len_max {
        return text.into();
    }
    let Some(kept) = len_max.checked_sub(1) else { return "".into() };
    // The end tells more: the number of a GPU stands there.
    let end = kept.div_ceil(2);
    let start: String = text.chars().take(kept - end).collect();
    let end: String = text.chars().skip(len - end).collect();
    format!("{start}…{end}").into()
}

/// Width of the terminal on standard output, from `COLUMNS` if it is set; none for a pipe or file.
pub(crate) fn width() -> Option<usize> {
    if !std::io::stdout().is_terminal() {
        return None;
    }
    let set = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    set.or_else(|| Some(crossterm::terminal::size().ok()?.0.into())).filter(|width| *width > 0)
}

/// Whether a line is longer than the terminal is wide, if there is one.
pub(crate) fn is_cut(text: &str, width: Option<usize>) -> bool {
    width.is_some_and(|width| text.lines().any(|line| line.chars().count() > width))
}
