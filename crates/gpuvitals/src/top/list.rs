//! The list of GPUs: its columns, and what stands in them.

use gpuvitals_core::throttle::{self, LimitBits};
use gpuvitals_core::{IdentityColumn, MetricId};
use gpuvitals_sources::sampler::Liveness;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::Paragraph;

use super::grid::{self, Cell, Head, Width};
use super::model::{Device, HISTORY, Model, Order, metric};

/// A column of the list.
struct Column {
    head: &'static str,
    /// The order that it shows, if the list can have it.
    order: Option<Order>,
    rank: u8,
    width: Width,
    cell: for<'a> fn(&'a Device, &Model) -> Cell<'a>,
}

const fn column(
    (rank, head): (u8, &'static str),
    width: Width,
    cell: for<'a> fn(&'a Device, &Model) -> Cell<'a>,
) -> Column {
    Column { head, order: None, rank, width, cell }
}

impl Column {
    const fn of(self, order: Order) -> Self {
        Self { order: Some(order), ..self }
    }
}

/// What a GPU does and how it is.
const VITALS: &[Column] = &[
    column((0, "gpu"), Width::Label(3), |gpu, model| plain(gpu, model, index(gpu))).of(Order::Index),
    column((6, "model"), Width::Words(8), |gpu, model| plain(gpu, model, name(gpu))),
    column((1, "busy"), Width::Number(4), |gpu, model| number(gpu, model, metric::BUSY)).of(Order::Busy),
    column((8, ""), Width::Drawn(6, 12), |gpu, model| bar(gpu, model, gpu.get(metric::BUSY))),
    column((2, "memory"), Width::Number(9), memory).of(Order::Memory),
    column((11, ""), Width::Drawn(6, 12), |gpu, model| bar(gpu, model, gpu.memory_pct())),
    column((5, "W"), Width::Number(4), |gpu, model| number(gpu, model, gpu.power_metric())).of(Order::Power),
    column((9, "cap"), Width::Number(4), |gpu, model| number(gpu, model, metric::CAP)),
    column((4, "°C"), Width::Number(3), heat).of(Order::Heat),
    column((7, "MHz"), Width::Number(4), |gpu, model| number(gpu, model, metric::CLOCK)),
    column((13, "mem"), Width::Number(4), |gpu, model| number(gpu, model, metric::MEMORY_CLOCK)),
    column((12, "fan"), Width::Number(4), |gpu, model| {
        value(gpu, model, metric::FAN, |pct| format!("{pct:.0}%"))
    }),
    column((3, "state"), Width::Label(5), state),
    column((10, "busy before"), Width::Drawn(11, HISTORY), spark),
];

/// What goes through it.
const TRAFFIC: &[Column] = &[
    column((0, "gpu"), Width::Label(3), |gpu, model| plain(gpu, model, index(gpu))).of(Order::Index),
    column((12, "model"), Width::Words(8), |gpu, model| plain(gpu, model, name(gpu))),
    column((1, "busy"), Width::Number(4), |gpu, model| number(gpu, model, metric::BUSY)).of(Order::Busy),
    column((3, "enc"), Width::Number(3), |gpu, model| number(gpu, model, metric::ENCODER)),
    column((4, "dec"), Width::Number(3), |gpu, model| number(gpu, model, metric::DECODER)),
    column((5, "video"), Width::Number(3), |gpu, model| number(gpu, model, metric::MEDIA)),
    column((11, "jpeg"), Width::Number(3), |gpu, model| number(gpu, model, metric::JPEG)),
    column((6, "PCIe"), Width::Label(4), pcie),
    column((7, "PCIe in"), Width::Number(7), |gpu, model| rate(gpu, model, metric::PCIE_IN)),
    column((8, "PCIe out"), Width::Number(7), |gpu, model| rate(gpu, model, metric::PCIE_OUT)),
    column((9, "links in"), Width::Number(7), |gpu, model| rate(gpu, model, metric::LINKS_IN)),
    column((10, "links out"), Width::Number(7), |gpu, model| rate(gpu, model, metric::LINKS_OUT)),
    column((2, "state"), Width::Label(5), state),
];

/// The GPUs around the selected one, and how many are above and below them.
pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model, visible: &[&Device]) {
    let selected = model.selected(visible);
    let room = usize::from(area.height.saturating_sub(1));
    let is_cut = visible.len() > room && room > 1;
    let room = if is_cut { room - 1 } else { room };
    let from = selected.saturating_sub(room.saturating_sub(1));
    let mut lines = lines(area.width, model, visible);
    if let Some(line) = lines.get_mut(selected + 1) {
        line.style = Style::new().add_modifier(Modifier::REVERSED);
    }
    let shown: Vec<Line<'_>> = lines
        .drain(..)
        .enumerate()
        .filter(|(at, _)| *at == 0 || (from + 1..=from + room).contains(at))
        .map(|(_, line)| line)
        .collect();
    let [list, hint] =
        Layout::vertical([Constraint::Min(0), Constraint::Length(u16::from(is_cut))]).areas(area);
    frame.render_widget(Paragraph::new(shown), list);
    let (above, below) = (from, visible.len().saturating_sub(from + room));
    let more = |count: usize, arrow| (count > 0).then(|| format!("… {count} more: {arrow}"));
    let more: Vec<String> = more(below, "↓").into_iter().chain(more(above, "↑")).collect();
    frame.render_widget(Paragraph::new(more.join("  ")).style(Style::new().fg(Color::Cyan)), hint);
}

/// The head of the list, and a line a GPU.
fn lines(width: u16, model: &Model, visible: &[&Device]) -> Vec<Line<'static>> {
    let columns = if model.show_traffic { TRAFFIC } else { VITALS };
    let heads: Vec<Head> = columns
        .iter()
        .map(|column| {
            // What the list is ordered by is seen.
            let is_order = column.order == Some(model.order);
            let arrow = if is_order { model.arrow() } else { "" };
            let rank = if is_order { 0 } else { column.rank };
            Head { text: format!("{}{arrow}", column.head), rank, width: column.width }
        })
        .collect();
    let rows: Vec<Vec<Cell<'_>>> =
        visible.iter().map(|gpu| columns.iter().map(|column| (column.cell)(gpu, model)).collect()).collect();
    grid::lines(&heads, &rows, width, model.glyphs)
}

/// Grey for what is not of now.
fn age_style(is_old: bool) -> Style {
    if is_old { Style::new().fg(Color::DarkGray) } else { Style::new() }
}

fn plain(gpu: &Device, model: &Model, text: String) -> Cell<'static> {
    Cell::Text(text, age_style(model.is_old(gpu)))
}

fn value(gpu: &Device, model: &Model, metric: MetricId, text: impl Fn(f64) -> String) -> Cell<'static> {
    match gpu.get(metric) {
        Some(value) => Cell::Text(text(value), age_style(model.is_value_old(gpu, metric))),
        None => Cell::Missing,
    }
}

fn number(gpu: &Device, model: &Model, metric: MetricId) -> Cell<'static> {
    value(gpu, model, metric, |value| format!("{value:.0}"))
}

fn memory(gpu: &Device, model: &Model) -> Cell<'static> {
    let total = gpu.get(metric::TOTAL).map_or_else(|| "-".to_owned(), |mb| format!("{:.0}G", mb / 1024.0));
    value(gpu, model, metric::USED, |mb| format!("{:.1}/{total}", mb / 1024.0))
}

fn heat(gpu: &Device, model: &Model) -> Cell<'static> {
    match number(gpu, model, metric::HEAT) {
        Cell::Text(text, style) if style.fg.is_none() && gpu.get(metric::HEAT) >= Some(85.0) => {
            Cell::Text(text, Style::new().fg(Color::Red))
        }
        cell => cell,
    }
}

fn bar(gpu: &Device, model: &Model, pct: Option<f64>) -> Cell<'static> {
    let Some(pct) = pct else { return Cell::Missing };
    let colour = match pct {
        _ if model.is_old(gpu) => Color::DarkGray,
        p if p >= 90.0 => Color::Magenta,
        p if p >= 50.0 => Color::Blue,
        _ => Color::Cyan,
    };
    Cell::Bar(pct, Style::new().fg(colour))
}

fn spark<'a>(gpu: &'a Device, model: &Model) -> Cell<'a> {
    if gpu.busy.iter().all(|pct| pct.is_nan()) {
        return Cell::Missing;
    }
    let colour = if model.is_old(gpu) { Color::DarkGray } else { Color::Green };
    Cell::Spark(&gpu.busy, Style::new().fg(colour))
}

fn pcie(gpu: &Device, model: &Model) -> Cell<'static> {
    let width = gpu.get(metric::PCIE_WIDTH).map_or(String::new(), |lanes| format!("x{lanes:.0}"));
    value(gpu, model, metric::PCIE_GENERATION, |generation| format!("{generation:.0}{width}"))
}

/// Bytes a second in three digits.
fn rate(gpu: &Device, model: &Model, metric: MetricId) -> Cell<'static> {
    value(gpu, model, metric, |bytes| {
        let (scale, unit) = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")]
            .into_iter()
            .find(|(scale, _)| bytes >= *scale)
            .unwrap_or((1.0, "B"));
        let decimals = usize::from(bytes / scale < 99.95 && scale > 1.0);
        format!("{:.decimals$}{unit}/s", bytes / scale)
    })
}

/// What holds the GPU up, or that and since when it does not answer.
fn state(gpu: &Device, model: &Model) -> Cell<'static> {
    let (text, colour) = match &gpu.liveness {
        Liveness::Starting => ("…".to_owned(), Color::DarkGray),
        Liveness::Down { reason, .. } => {
            let age = model.age(gpu).map_or(String::new(), |seconds| format!(" {seconds}s"));
            (format!("{}{age}", reason.as_str()), Color::Yellow)
        }
        Liveness::Stuck { for_ns } => (format!("stuck {}s", for_ns / 1_000_000_000), Color::Red),
        Liveness::Up if model.is_old(gpu) => {
            let age = model.age(gpu).map_or(String::new(), |seconds| format!("{seconds}s "));
            (format!("{age}old"), Color::Yellow)
        }
        Liveness::Up => (why_slow(gpu).unwrap_or_default(), Color::Red),
    };
    Cell::Text(text, Style::new().fg(colour))
}

/// The limits that hold the clocks down, with the share of time where the GPU counts it; none if nothing does.
fn why_slow(gpu: &Device) -> Option<String> {
    let now = gpu.throttling?;
    let share = |share: f64| if now.is_share { format!(" {:.0}%", 100.0 * share) } else { String::new() };
    // Less than half a percent of the time is none.
    let holds = |limit: Option<f64>| limit.filter(|share| *share >= 0.005);
    #[expect(clippy::cast_possible_truncation, reason = "bits, which a float of 64 holds")]
    let bits = gpu.get(throttle::REASONS).map_or(0, |bits| bits as i64);
    let power = if LimitBits::of_reasons(bits).brake { "brake" } else { "power" };
    let words: Vec<String> = [(power, now.power), ("heat", now.heat)]
        .into_iter()
        .filter_map(|(word, limit)| holds(limit).map(|limit| format!("{word}{}", share(limit))))
        .collect();
    if !words.is_empty() {
        return Some(words.join("+"));
    }
    // Neither of them, or the driver does not say which.
    holds(Some(now.any)).map(|_| if now.power.is_some() { "hardware" } else { "slow" }.to_owned())
}

/// The number of a GPU, with `+` if it is a partition.
pub(super) fn index(gpu: &Device) -> String {
    let partition = gpu.identity.get(IdentityColumn::Partition).map_or("", |_| "+");
    gpu.identity.index.map_or_else(|| "?".to_owned(), |index| format!("{index}{partition}"))
}

/// Families of cards: beside a number they say nothing more, and take the room of it.
const FAMILIES: [&str; 4] = ["Instinct ", "Radeon ", "GeForce ", "Tesla "];

/// What tells cards apart: the model without its maker and, where it has a number, its family.
fn name(gpu: &Device) -> String {
    let name = gpu.identity.get(IdentityColumn::Model).or_else(|| gpu.identity.uuid()).unwrap_or_default();
    let name = name.replace("NVIDIA ", "").replace("AMD ", "");
    let has_number = |rest: &&str| rest.contains(|c: char| c.is_ascii_digit());
    let rest = FAMILIES.into_iter().find_map(|family| name.strip_prefix(family)).filter(has_number);
    rest.map_or_else(|| name.clone(), str::to_owned)
}
