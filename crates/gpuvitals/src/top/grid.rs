//! Rows in columns: which of them the width has room for, and how wide they are. What is shown of a number is all of it.

use std::collections::VecDeque;

use ratatui::buffer::Buffer;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

use crate::table::{Room, fit, shortened};

/// Characters of a chart, from empty to full.
const BLOCKS: [&str; 9] = [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];
const ASCII: [&str; 9] = [" ", ".", ".", ":", ":", "-", "=", "+", "#"];

/// The characters that bars and charts are drawn with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Glyphs {
    /// Lines and blocks of Unicode.
    Blocks,
    /// For terminals and files without these.
    Ascii,
}

/// Puts characters of ASCII, as wide as they are, in place of all others of a frame.
pub(super) fn into_ascii(frame: &mut Buffer) {
    for cell in &mut frame.content {
        let plain = match cell.symbol() {
            symbol if symbol.is_ascii() => continue,
            // Of degrees the unit is left.
            "°" => ' ',
            "…" => '.',
            "↑" => '^',
            "↓" => 'v',
            "▏" | "│" => '|',
            "─" => '-',
            "┌" | "┐" | "└" | "┘" => '+',
            // Names may have any.
            _ => '?',
        };
        cell.set_char(plain);
    }
}

/// The width of a column, and the side on which its cells stand.
#[derive(Debug, Clone, Copy)]
pub(super) enum Width {
    /// As its widest cell, and at least this; on the right.
    Number(usize),
    /// The same on the left.
    Label(usize),
    /// As its widest cell, or less down to this: texts are shortened.
    Words(usize),
    /// What fits between these.
    Drawn(usize, usize),
}

/// The head of a column.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) text: String,
    /// Columns come in by rank, the lowest first.
    pub(super) rank: u8,
    pub(super) width: Width,
}

/// What stands in a row of a column.
#[derive(Debug)]
pub(super) enum Cell<'a> {
    /// The driver gives no value: a dash, and nothing in a drawn column.
    Missing,
    Text(String, Style),
    /// A share, %.
    Bar(f64, Style),
    /// The newest of these values, %.
    Spark(&'a VecDeque<f64>, Style),
}

impl Cell<'_> {
    /// Characters that it needs.
    fn len(&self) -> usize {
        match self {
            Self::Missing => 1,
            Self::Text(text, _) => text.chars().count(),
            Self::Bar(..) | Self::Spark(..) => 0,
        }
    }

    /// Itself in a column of this width.
    fn span(&self, column: Width, width: usize, glyphs: Glyphs) -> Span<'static> {
        match self {
            Self::Missing if matches!(column, Width::Drawn(..)) => " ".repeat(width).into(),
            Self::Missing => placed("-", column, width).into(),
            Self::Text(text, style) => Span::styled(placed(text, column, width), *style),
            Self::Bar(pct, style) => Span::styled(bar(*pct, width, glyphs), *style),
            Self::Spark(values, style) => Span::styled(spark(values, width, glyphs), *style),
        }
    }
}

/// The lines of a table, the first its heads. A column in which no row has a value is left out.
pub(super) fn lines(
    heads: &[Head],
    rows: &[Vec<Cell<'_>>],
    width: u16,
    glyphs: Glyphs,
) -> Vec<Line<'static>> {
    let rooms: Vec<Option<Room>> = heads
        .iter()
        .enumerate()
        .map(|(at, head)| {
            let cells = || rows.iter().filter_map(|row| row.get(at));
            if !rows.is_empty() && cells().all(|cell| matches!(cell, Cell::Missing)) {
                return None;
            }
            let widest = cells().map(Cell::len).max().unwrap_or(0).max(head.text.chars().count());
            let (least, most) = match head.width {
                Width::Number(least) | Width::Label(least) => (widest.max(least), widest.max(least)),
                Width::Words(least) => (widest.min(least), widest),
                Width::Drawn(least, most) => (least, most),
            };
            Some(Room { rank: head.rank, least, most })
        })
        .collect();
    let widths = fit(&rooms, 1, width.into());
    let dim = Style::new().add_modifier(Modifier::DIM);
    let columns =
        || heads.iter().zip(&widths).enumerate().filter_map(|(at, (it, width))| Some((at, it, (*width)?)));
    let head = columns().map(|(_, head, width)| Span::styled(placed(&head.text, head.width, width), dim));
    let lines = rows.iter().map(|row| {
        let cells =
            columns().filter_map(|(at, head, width)| Some(row.get(at)?.span(head.width, width, glyphs)));
        line(cells, width)
    });
    std::iter::once(line(head, width)).chain(lines).collect()
}

/// Cells with a gap between them, and to the end of the line.
fn line(cells: impl Iterator<Item = Span<'static>>, width: u16) -> Line<'static> {
    let mut spans: Vec<Span<'static>> = cells.flat_map(|cell| [cell, Span::raw(" ")]).collect();
    let len: usize = spans.iter().map(Span::width).sum();
    spans.push(Span::raw(" ".repeat(usize::from(width).saturating_sub(len))));
    Line::from(spans)
}

fn placed(text: &str, column: Width, width: usize) -> String {
    let text = shortened(text, width);
    match column {
        Width::Number(_) => format!("{text:>width$}"),
        Width::Label(_) | Width::Words(_) | Width::Drawn(..) => format!("{text:<width$}"),
    }
}

fn bar(pct: f64, width: usize, glyphs: Glyphs) -> String {
    let part = |at| part_of(pct, width, at);
    let (full, empty) = match glyphs {
        Glyphs::Blocks => ("━", "─"),
        Glyphs::Ascii => ("#", "."),
    };
    (0..width).map(|at| if part(at) >= 0.5 { full } else { empty }).collect()
}

/// The share of the cell at this place that a bar of this length fills.
fn part_of(pct: f64, width: usize, at: usize) -> f64 {
    let cells = |count: usize| u32::try_from(count).map_or(f64::MAX, f64::from);
    (pct.clamp(0.0, 100.0) / 100.0 * cells(width) - cells(at)).clamp(0.0, 1.0)
}

/// A character a value, the newest on the right; a value that is not known is a gap, and 0 is none.
fn spark(values: &VecDeque<f64>, width: usize, glyphs: Glyphs) -> String {
    let newest = values.iter().skip(values.len().saturating_sub(width));
    let drawn: String = newest
        .map(|pct| if pct.is_finite() { block((pct / 100.0).max(0.125), glyphs) } else { " " })
        .collect();
    format!("{drawn:>width$}")
}

/// A character that is filled to this share.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of 8, clamped")]
pub(super) fn block(share: f64, glyphs: Glyphs) -> &'static str {
    let at = (share * 8.0).round().clamp(0.0, 8.0) as usize;
    let blocks = match glyphs {
        Glyphs::Blocks => &BLOCKS,
        Glyphs::Ascii => &ASCII,
    };
    blocks.get(at).copied().unwrap_or(" ")
}
