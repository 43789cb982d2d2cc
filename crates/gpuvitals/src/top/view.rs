//! Drawing.

use std::collections::VecDeque;

use gpuvitals_core::quantity::counted;
use gpuvitals_core::time;
use gpuvitals_sources::processes::{GpuProcess, ProcessGap};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph};

use super::grid::{self, Cell, Glyphs, Head, Width, block};
use super::keys::KEYS;
use super::list::{self, index};
use super::model::{Device, Model, metric};
use crate::table::{Room, fit};

/// Rows of the selected GPU's histories with their title.
const HISTORY_ROWS: u16 = 6;
/// Rows of processes at most.
const PROCESS_ROWS: u16 = 10;

/// Draws a frame: the head, the list, histories and processes of the selected GPU as far as there is room, and the keys.
pub(super) fn draw(frame: &mut Frame<'_>, model: &Model) {
    let area = frame.area();
    let visible = model.visible();
    let rows = u16::try_from(visible.len()).unwrap_or(u16::MAX).saturating_add(1);
    let of_selected = visible.get(model.selected(&visible)).copied();
    let processes = ProcessPane::of(model, of_selected);
    let want_processes = if model.show_processes { processes.height() } else { 0 };
    let [head, list_area, history, list_processes, foot] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Min(rows.min(area.height / 2)),
        Constraint::Length(if area.height >= 20 { HISTORY_ROWS } else { 0 }),
        Constraint::Length(if area.height >= 16 { want_processes } else { 0 }),
        Constraint::Length(1),
    ])
    .areas(area);
    draw_head(frame, head, model);
    list::draw(frame, list_area, model, &visible);
    if let Some(gpu) = of_selected {
        draw_history(frame, history, model, gpu);
    }
    draw_processes(frame, list_processes, model, &processes);
    draw_foot(frame, foot, model);
    if model.show_help {
        draw_help(frame, area);
    }
    if model.glyphs == Glyphs::Ascii {
        grid::into_ascii(frame.buffer_mut());
    }
}

fn draw_head(frame: &mut Frame<'_>, area: Rect, model: &Model) {
    let clock = time::format(model.newest_ns.div_euclid(1_000_000_000) * 1_000_000_000);
    let clock =
        if model.newest_ns == 0 { String::new() } else { clock.replace('T', " ").replace('Z', " UTC") };
    let plain = Style::new();
    let warning = Style::new().fg(Color::Yellow).add_modifier(Modifier::BOLD);
    let said = |is: bool, word: &str| if is { word.to_owned() } else { String::new() };
    let first = fitting(
        &[
            (0, "gpuvitals top".to_owned(), plain.add_modifier(Modifier::BOLD)),
            (1, said(model.is_simulated(), "simulated"), warning),
            (2, said(model.is_paused(), "paused"), warning),
            (5, model.node.clone(), plain),
            (3, counted(model.count() as u64, "GPU"), plain),
            (6, format!("every {:?}", model.sampler.interval), plain),
            (4, clock, plain),
        ],
        area.width,
    );
    let host = model.host.as_ref().map_or(Line::default(), |host| {
        let memory = match (host.get(metric::HOST_USED), host.get(metric::HOST_TOTAL)) {
            (Some(used), Some(total)) => format!("{:.0}/{:.0} GiB", used / 1024.0, total / 1024.0),
            _ => "-".to_owned(),
        };
        // A share needs two readings: before the second there is none.
        let cpu = host.get(metric::CPU).map_or_else(String::new, |pct| format!("cpu {pct:.0} %"));
        let parts = [
            (0, cpu, plain),
            (1, format!("memory {memory}"), plain),
            (2, format!("load {}", text(host.get(metric::LOAD), 2)), plain),
        ];
        fitting(&parts, area.width)
    });
    frame.render_widget(Paragraph::new(vec![first, host]), area);
}

/// Those of the parts that the width has room for, the lowest ranks.
fn fitting(parts: &[(u8, String, Style)], width: u16) -> Line<'static> {
    let room = |text: &String| {
        let len = text.chars().count();
        (len > 0).then_some(len)
    };
    let rooms: Vec<Option<Room>> = parts
        .iter()
        .map(|(rank, text, _)| room(text).map(|len| Room { rank: *rank, least: len, most: len }))
        .collect();
    let shown = parts.iter().zip(fit(&rooms, 2, width.into())).filter(|(_, width)| width.is_some());
    let spans = shown.flat_map(|((_, text, style), _)| [Span::styled(text.clone(), *style), Span::raw("  ")]);
    Line::from(spans.collect::<Vec<_>>())
}

fn draw_history(frame: &mut Frame<'_>, area: Rect, model: &Model, gpu: &Device) {
    if area.height < 3 {
        return;
    }
    let [left, right] =
        Layout::horizontal([Constraint::Percentage(50), Constraint::Percentage(50)]).areas(area);
    let titles = [format!("GPU {} busy %", index(gpu))];
    draw_chart(frame, left, &Chart { titles: &titles, values: &gpu.busy, top: 100.0 }, model.glyphs);
    let cap = gpu.get(metric::CAP);
    let top = gpu.power.iter().copied().filter(|v| v.is_finite()).fold(cap.unwrap_or(1.0), f64::max);
    let now = text(gpu.power_now(), 0);
    let titles = [format!("power {now} W of {} W", text(cap, 0)), format!("power {now} W")];
    draw_chart(frame, right, &Chart { titles: &titles, values: &gpu.power, top }, model.glyphs);
}

/// A bar chart of the newest values, one a column; a value that is not known is a gap.
struct Chart<'a> {
    /// The first that has room stands above it.
    titles: &'a [String],
    values: &'a VecDeque<f64>,
    /// The value of a full bar.
    top: f64,
}

fn draw_chart(frame: &mut Frame<'_>, area: Rect, chart: &Chart<'_>, glyphs: Glyphs) {
    let Chart { titles, values, top } = chart;
    let [head, body] = Layout::vertical([Constraint::Length(1), Constraint::Min(1)]).areas(area);
    let style = Style::new().add_modifier(Modifier::DIM);
    let title = titles.iter().find(|title| title.chars().count() < usize::from(area.width));
    frame.render_widget(Paragraph::new(title.cloned().unwrap_or_default()).style(style), head);
    let width = usize::from(body.width.saturating_sub(1));
    let newest: Vec<f64> = values.iter().copied().skip(values.len().saturating_sub(width)).collect();
    let height = f64::from(body.height);
    let lines: Vec<Line<'_>> = (0..body.height)
        .rev()
        .map(|level| {
            let cells = newest.iter().map(|value| {
                let filled = if value.is_finite() { value / top.max(1e-9) * height } else { 0.0 };
                block((filled - f64::from(level)).clamp(0.0, 1.0), glyphs)
            });
            Line::from(cells.collect::<String>())
        })
        .collect();
    frame.render_widget(Paragraph::new(lines).style(Style::new().fg(Color::Green)), body);
}

/// What is listed of the selected GPU's processes; of all GPUs' if none is selected.
struct ProcessPane<'a> {
    /// The largest first.
    processes: Vec<&'a GpuProcess>,
    /// The first gap in the list that concerns the GPU.
    gap: Option<&'a ProcessGap>,
}

impl<'a> ProcessPane<'a> {
    fn of(model: &'a Model, gpu: Option<&Device>) -> Self {
        let key = gpu.and_then(|gpu| gpu.identity.key());
        let list = &model.listed.list;
        let is_of_gpu = |process: &&GpuProcess| key.is_none() || key == process.gpu.key();
        let mut processes: Vec<&GpuProcess> = list.processes.iter().filter(is_of_gpu).collect();
        processes.sort_by_key(|process| (std::cmp::Reverse(process.memory_mb), process.pid));
        let gap = list.gaps.iter().find(|gap| gap.gpu.is_none() || key.is_none() || gap.gpu == key);
        Self { processes, gap }
    }

    /// Lines that it needs with its head.
    fn height(&self) -> u16 {
        let shown = u16::try_from(self.processes.len()).unwrap_or(PROCESS_ROWS).min(PROCESS_ROWS);
        shown.max(1) + 1 + u16::from(self.gap.is_some())
    }
}

fn draw_processes(frame: &mut Frame<'_>, mut area: Rect, model: &Model, pane: &ProcessPane<'_>) {
    let ProcessPane { processes, gap } = pane;
    if area.height == 0 {
        return;
    }
    if let Some(gap) = gap {
        let [line, rest] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area);
        frame.render_widget(Paragraph::new(gap.to_string()).style(Style::new().fg(Color::Yellow)), line);
        area = rest;
        if processes.is_empty() {
            return;
        }
    }
    if processes.is_empty() {
        let text = "no processes seen (those of other users need root)";
        frame.render_widget(Paragraph::new(text).style(Style::new().add_modifier(Modifier::DIM)), area);
        return;
    }
    let heads = [
        ("pid", 0, Width::Number(7)),
        ("user", 2, Width::Words(6)),
        ("process", 1, Width::Words(12)),
        ("MiB", 3, Width::Number(6)),
        ("busy %", 4, Width::Number(6)),
        ("mem %", 6, Width::Number(5)),
        ("kind", 5, Width::Label(8)),
    ];
    let heads = heads.map(|(text, rank, width)| Head { text: text.to_owned(), rank, width });
    let rows: Vec<Vec<Cell<'_>>> = processes.iter().map(|process| process_row(process, model)).collect();
    frame.render_widget(Paragraph::new(grid::lines(&heads, &rows, area.width, model.glyphs)), area);
}

fn process_row(process: &GpuProcess, model: &Model) -> Vec<Cell<'static>> {
    let cell = |text: Option<String>| text.map_or(Cell::Missing, |text| Cell::Text(text, Style::new()));
    let whole = |value: Option<f32>| cell(value.map(|value| format!("{value:.0}")));
    vec![
        cell(Some(process.pid.to_string())),
        cell(model.listed.users.get(&process.pid).cloned()),
        cell(Some(process.name.to_string())),
        cell(process.memory_mb.map(|mb| mb.to_string())),
        whole(process.utilization_pct),
        whole(process.memory_utilization_pct),
        cell(Some(process.kind.as_str().to_owned())),
    ]
}

fn draw_foot(frame: &mut Frame<'_>, area: Rect, model: &Model) {
    let line = if model.is_typing() {
        Line::from(format!("filter: {}▏ (enter keeps it, esc forgets it)", model.filter))
    } else {
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let filter = Some(format!("filter {}", model.filter)).filter(|_| !model.filter.is_empty());
        // A part is a key with its word.
        let rooms: Vec<Option<Room>> = KEYS
            .iter()
            .map(|hint| (hint.rank + 1, hint.key.chars().count() + 1 + hint.what.chars().count()))
            .chain(filter.iter().map(|text| (0, text.chars().count())))
            .map(|(rank, len)| Some(Room { rank, least: len, most: len }))
            .collect();
        let shown = fit(&rooms, 2, area.width.into());
        let mut spans: Vec<Span<'_>> = KEYS
            .iter()
            .zip(&shown)
            .filter(|(_, width)| width.is_some())
            .flat_map(|(hint, _)| [Span::styled(hint.key, bold), Span::raw(format!(" {}  ", hint.what))])
            .collect();
        spans.extend(filter.map(|text| Span::styled(text, Style::new().fg(Color::Cyan))));
        Line::from(spans)
    };
    frame.render_widget(Paragraph::new(line), area);
}

fn draw_help(frame: &mut Frame<'_>, area: Rect) {
    let mut lines: Vec<Line<'_>> =
        KEYS.iter().map(|hint| Line::from(format!(" {:>6}  {}", hint.key, hint.what))).collect();
    let words = [
        "",
        " state: what holds the clocks down: power, heat, brake (of the",
        "   chassis), hardware; or since when a GPU does not answer",
        " grey: a value of earlier",
        " -: the driver gives no value; gpuvitals doctor says why",
    ];
    lines.extend(words.map(Line::from));
    let width = 66.min(area.width);
    let height = u16::try_from(lines.len() + 2).unwrap_or(u16::MAX).min(area.height);
    let place =
        Rect { x: area.x + (area.width - width) / 2, y: area.y + (area.height - height) / 2, width, height };
    frame.render_widget(Clear, place);
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(" keys ")), place);
}

fn text(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.decimals$}"))
}
