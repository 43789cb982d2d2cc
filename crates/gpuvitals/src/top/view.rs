//! Drawing.

use std::collections::VecDeque;

use gpuvitals_core::quantity::counted;
use gpuvitals_core::{IdentityColumn, time};
use gpuvitals_sources::processes::{GpuProcess, ProcessGap};
use gpuvitals_sources::sampler::Liveness;
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Row, Table};

use super::keys::KEYS;
use super::model::{Device, Model, metric};

/// Rows of the selected GPU's histories with their title.
const HISTORY_ROWS: u16 = 6;
/// Rows of processes at most.
const PROCESS_ROWS: u16 = 10;
/// Characters of a bar, from empty to full.
const BLOCKS: [&str; 9] = [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];
const ASCII: [&str; 9] = [" ", ".", ".", ":", ":", "-", "=", "+", "#"];

/// Draws everything.
pub(super) fn draw(frame: &mut Frame<'_>, model: &Model) {
    let area = frame.area();
    let visible = model.visible();
    let selected = model.selected(&visible);
    let rows = u16::try_from(visible.len()).unwrap_or(u16::MAX).saturating_add(1);
    let of_selected = visible.get(selected).copied();
    let processes = processes_of(model, of_selected);
    let shown = u16::try_from(processes.len()).unwrap_or(PROCESS_ROWS).min(PROCESS_ROWS);
    let gap = gap_of(model, of_selected);
    let want_processes = if model.show_processes { shown.max(1) + 1 + u16::from(gap.is_some()) } else { 0 };
    let [head, list, history, list_processes, foot] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Min(rows.min(area.height / 2)),
        Constraint::Length(if area.height >= 20 { HISTORY_ROWS } else { 0 }),
        Constraint::Length(if area.height >= 16 { want_processes } else { 0 }),
        Constraint::Length(1),
    ])
    .areas(area);
    draw_head(frame, head, model);
    draw_list(frame, list, model, &visible, selected);
    if let Some(gpu) = of_selected {
        draw_history(frame, history, model, gpu);
    }
    draw_processes(frame, list_processes, &processes, gap);
    draw_foot(frame, foot, model);
    if model.show_help {
        draw_help(frame, area);
    }
}

fn draw_head(frame: &mut Frame<'_>, area: Rect, model: &Model) {
    let clock = time::format(model.newest_ns.div_euclid(1_000_000_000) * 1_000_000_000);
    let clock =
        if model.newest_ns == 0 { String::new() } else { clock.replace('T', " ").replace('Z', " UTC") };
    let host = model.host.as_ref().map_or(String::new(), |host| {
        let memory = match (host.get(metric::HOST_USED), host.get(metric::HOST_TOTAL)) {
            (Some(used), Some(total)) => format!("{:.0}/{:.0} GiB", used / 1024.0, total / 1024.0),
            _ => "-".to_owned(),
        };
        format!(
            "cpu {} %  memory {memory}  load {}",
            text(host.get(metric::CPU), 0),
            text(host.get(metric::LOAD), 2)
        )
    });
    let left = Line::from(vec![
        Span::styled("gpuvitals top", Style::new().add_modifier(Modifier::BOLD)),
        Span::raw(format!(
            "  {}  {}  every {:?}",
            model.node,
            counted(model.count() as u64, "GPU"),
            model.interval
        )),
    ]);
    frame.render_widget(Paragraph::new(vec![left, Line::from(host)]), area);
    let state = if model.is_paused() { "paused" } else { "" };
    let right = Paragraph::new(vec![Line::from(clock), Line::from(state)]).alignment(Alignment::Right);
    frame.render_widget(right, area);
}

fn draw_list(frame: &mut Frame<'_>, area: Rect, model: &Model, visible: &[&Device], selected: usize) {
    let wide = area.width >= 100;
    let bar_width: u16 = if wide { 12 } else { 6 };
    let head = ["gpu", "model", "busy", "", "memory", "", "W", "cap", "°C", "MHz", "mem", "fan", ""];
    let header = Row::new(head).style(Style::new().add_modifier(Modifier::DIM));
    // The list scrolls so that the selected GPU is in it.
    let room = usize::from(area.height.saturating_sub(1));
    let from = selected.saturating_sub(room.saturating_sub(1));
    let rows = visible.iter().enumerate().skip(from).take(room).map(|(at, gpu)| {
        let row = match &gpu.liveness {
            Liveness::Up => values_row(gpu, model, bar_width),
            other => down_row(gpu, other),
        };
        if at == selected { row.style(Style::new().add_modifier(Modifier::REVERSED)) } else { row }
    });
    let widths = [
        Constraint::Length(4),
        Constraint::Min(if wide { 18 } else { 8 }),
        Constraint::Length(4),
        Constraint::Length(bar_width),
        Constraint::Length(if wide { 13 } else { 9 }),
        Constraint::Length(if wide { bar_width } else { 0 }),
        Constraint::Length(5),
        Constraint::Length(if wide { 5 } else { 4 }),
        Constraint::Length(3),
        Constraint::Length(5),
        Constraint::Length(5),
        Constraint::Length(4),
        Constraint::Length(5),
    ];
    frame.render_widget(Table::new(rows, widths).header(header).column_spacing(1), area);
}

fn values_row<'a>(gpu: &Device, model: &Model, bar_width: u16) -> Row<'a> {
    let busy = gpu.get(metric::BUSY);
    let (used, total) = (gpu.get(metric::USED), gpu.get(metric::TOTAL));
    let share = used.zip(total).filter(|(_, total)| *total > 0.0).map(|(used, total)| used / total * 100.0);
    let gib = |mb: Option<f64>| mb.map_or_else(|| "-".to_owned(), |mb| format!("{:.1}", mb / 1024.0));
    let memory = format!(
        "{}/{}",
        gib(used),
        total.map_or_else(|| "-".to_owned(), |mb| format!("{:.0}G", mb / 1024.0))
    );
    let throttled = gpu.get(metric::THROTTLED).is_some_and(|v| v > 0.0);
    let heat = gpu.get(metric::HEAT);
    let hot = heat.is_some_and(|c| c >= 85.0);
    let mark = |on: bool| if on { Style::new().fg(Color::Red) } else { Style::new() };
    let cells = [
        Span::raw(index(gpu)),
        Span::raw(name(gpu)),
        Span::raw(text(busy, 0)),
        bar(busy, bar_width, model.ascii),
        Span::raw(memory),
        bar(share, bar_width, model.ascii),
        Span::raw(text(gpu.power_now(), 0)),
        Span::raw(text(gpu.get(metric::CAP), 0)),
        Span::styled(text(heat, 0), mark(hot)),
        Span::raw(text(gpu.get(metric::CLOCK), 0)),
        Span::raw(text(gpu.get(metric::MEMORY_CLOCK), 0)),
        Span::raw(gpu.get(metric::FAN).map_or_else(|| "-".to_owned(), |pct| format!("{pct:.0}%"))),
        Span::styled(if throttled { "SLOW" } else { "" }, mark(true)),
    ];
    Row::new(cells.map(Line::from))
}

fn down_row<'a>(gpu: &Device, liveness: &Liveness) -> Row<'a> {
    let (word, style) = match liveness {
        Liveness::Starting | Liveness::Up => ("…".to_owned(), Style::new().add_modifier(Modifier::DIM)),
        Liveness::Down { reason, .. } => (reason.as_str().to_owned(), Style::new().fg(Color::Yellow)),
        Liveness::Stuck { for_ns } => {
            (format!("stuck {}s", for_ns / 1_000_000_000), Style::new().fg(Color::Red))
        }
    };
    Row::new([index(gpu), name(gpu), String::new(), String::new(), word]).style(style)
}

fn draw_history(frame: &mut Frame<'_>, area: Rect, model: &Model, gpu: &Device) {
    if area.height < 3 {
        return;
    }
    let [left, right] =
        Layout::horizontal([Constraint::Percentage(50), Constraint::Percentage(50)]).areas(area);
    let title = format!("GPU {} busy %", index(gpu).trim());
    draw_chart(frame, left, &title, &gpu.busy, 100.0, model.ascii);
    let cap = gpu.get(metric::CAP);
    let top = gpu.power.iter().copied().filter(|v| v.is_finite()).fold(cap.unwrap_or(1.0), f64::max);
    let title = format!("power {} W of {} W", text(gpu.power_now(), 0), text(cap, 0));
    draw_chart(frame, right, &title, &gpu.power, top, model.ascii);
}

/// A bar chart of the newest values, one a column; a value that is not known is a gap.
fn draw_chart(frame: &mut Frame<'_>, area: Rect, title: &str, values: &VecDeque<f64>, top: f64, ascii: bool) {
    let [head, body] = Layout::vertical([Constraint::Length(1), Constraint::Min(1)]).areas(area);
    let style = Style::new().add_modifier(Modifier::DIM);
    frame.render_widget(Paragraph::new(title.to_owned()).style(style), head);
    let width = usize::from(body.width.saturating_sub(1));
    let newest: Vec<f64> = values.iter().copied().skip(values.len().saturating_sub(width)).collect();
    let height = f64::from(body.height);
    let lines: Vec<Line<'_>> = (0..body.height)
        .rev()
        .map(|level| {
            let cells = newest.iter().map(|value| {
                let filled = if value.is_finite() { value / top.max(1e-9) * height } else { 0.0 };
                block((filled - f64::from(level)).clamp(0.0, 1.0), ascii)
            });
            Line::from(cells.collect::<String>())
        })
        .collect();
    frame.render_widget(Paragraph::new(lines).style(Style::new().fg(Color::Green)), body);
}

/// The selected GPU's processes, the largest first; all of them if none is selected.
fn processes_of<'a>(model: &'a Model, gpu: Option<&Device>) -> Vec<&'a GpuProcess> {
    let key = gpu.and_then(|gpu| gpu.identity.key());
    let mut of: Vec<&GpuProcess> =
        model.listed.processes.iter().filter(|process| key.is_none() || key == process.gpu.key()).collect();
    of.sort_by_key(|process| (std::cmp::Reverse(process.memory_mb), process.pid));
    of
}

/// The first gap in the list that concerns the selected GPU.
fn gap_of<'a>(model: &'a Model, gpu: Option<&Device>) -> Option<&'a ProcessGap> {
    let key = gpu.and_then(|gpu| gpu.identity.key());
    model.listed.gaps.iter().find(|gap| gap.gpu.is_none() || key.is_none() || gap.gpu == key)
}

fn draw_processes(
    frame: &mut Frame<'_>,
    mut area: Rect,
    processes: &[&GpuProcess],
    gap: Option<&ProcessGap>,
) {
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
    let header = Row::new(["pid", "process", "kind", "MiB", "busy %", "mem %"])
        .style(Style::new().add_modifier(Modifier::DIM));
    let whole = |value: Option<f32>| text(value.map(f64::from), 0);
    let rows = processes.iter().map(|process| {
        Row::new([
            process.pid.to_string(),
            process.name.to_string(),
            process.kind.as_str().to_owned(),
            process.memory_mb.map_or_else(|| "-".to_owned(), |mb| mb.to_string()),
            whole(process.utilization_pct),
            whole(process.memory_utilization_pct),
        ])
    });
    let widths = [
        Constraint::Length(8),
        Constraint::Min(16),
        Constraint::Length(16),
        Constraint::Length(8),
        Constraint::Length(6),
        Constraint::Length(6),
    ];
    frame.render_widget(Table::new(rows, widths).header(header).column_spacing(1), area);
}

fn draw_foot(frame: &mut Frame<'_>, area: Rect, model: &Model) {
    let line = if model.is_typing() {
        Line::from(format!("filter: {}▏ (enter keeps it, esc forgets it)", model.filter))
    } else {
        let arrow = if model.is_reversed() { "reversed" } else { "" };
        let mut spans: Vec<Span<'_>> = KEYS
            .iter()
            .flat_map(|(key, what)| {
                [
                    Span::styled(*key, Style::new().add_modifier(Modifier::BOLD)),
                    Span::raw(format!(" {what}  ")),
                ]
            })
            .collect();
        spans.push(Span::styled(
            format!("by {} {arrow}", model.order.name()),
            Style::new().add_modifier(Modifier::DIM),
        ));
        if !model.filter.is_empty() {
            spans.push(Span::styled(format!(" filter {}", model.filter), Style::new().fg(Color::Cyan)));
        }
        Line::from(spans)
    };
    frame.render_widget(Paragraph::new(line), area);
}

fn draw_help(frame: &mut Frame<'_>, area: Rect) {
    let rows = u16::try_from(KEYS.len()).unwrap_or(8) + 6;
    let width = 62.min(area.width);
    let height = rows.min(area.height);
    let place =
        Rect { x: area.x + (area.width - width) / 2, y: area.y + (area.height - height) / 2, width, height };
    let mut lines: Vec<Line<'_>> =
        KEYS.iter().map(|(key, what)| Line::from(format!(" {key:>6}  {what}"))).collect();
    lines.push(Line::from(""));
    lines.push(Line::from(" SLOW: power, heat or the hardware hold the clocks down"));
    lines.push(Line::from(" -: the driver gives no value; gpuvitals doctor says why"));
    frame.render_widget(Clear, place);
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(" keys ")), place);
}

fn index(gpu: &Device) -> String {
    let partition = gpu.identity.get(IdentityColumn::Partition).map_or("", |_| "+");
    gpu.identity.index.map_or_else(|| "?".to_owned(), |index| format!("{index}{partition}"))
}

fn name(gpu: &Device) -> String {
    let name = gpu.identity.get(IdentityColumn::Model).or_else(|| gpu.identity.uuid()).unwrap_or_default();
    name.replace("NVIDIA ", "").replace("AMD ", "")
}

fn text(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.decimals$}"))
}

/// A bar of whole and part blocks; empty without a value.
fn bar<'a>(pct: Option<f64>, width: u16, ascii: bool) -> Span<'a> {
    let Some(pct) = pct else { return Span::raw("") };
    let filled = pct.clamp(0.0, 100.0) / 100.0 * f64::from(width);
    let cells: String = (0..width)
        .map(|at| {
            let part = (filled - f64::from(at)).clamp(0.0, 1.0);
            match (ascii, part) {
                (true, part) => {
                    if part >= 0.5 {
                        "#"
                    } else {
                        "."
                    }
                }
                (false, part) if part >= 0.5 => "━",
                (false, _) => "─",
            }
        })
        .collect();
    let colour = match pct {
        p if p >= 90.0 => Color::Magenta,
        p if p >= 50.0 => Color::Blue,
        _ => Color::Cyan,
    };
    Span::styled(cells, Style::new().fg(colour))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of 8, clamped")]
fn block(share: f64, ascii: bool) -> &'static str {
    let at = (share * 8.0).round().clamp(0.0, 8.0) as usize;
    let blocks = if ascii { &ASCII } else { &BLOCKS };
    blocks.get(at).copied().unwrap_or(" ")
}
