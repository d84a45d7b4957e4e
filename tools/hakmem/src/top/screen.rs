//! screen.rs - the state as a screen: a line that says where we are, three of figures, a table, a line of keys.
//!
//! Rule: nothing is said by colour alone, and 80 columns by 24 lines hold all of it; smaller ones what fits.

use super::look::{Seen, SeenSite};
use super::state::{Panel, State};
use crate::recording::pages::ClassCount;
use crate::report::words::{percent, rounded};
use crate::text::{bytes, count};
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Clear, Paragraph, Row, Sparkline, Table, TableState};

/// What the terminal takes.
#[derive(Clone, Copy)]
pub struct Looks {
    pub has_colour: bool,
    pub has_unicode: bool,
}

impl Looks {
    fn style(self, colour: Color) -> Style {
        if self.has_colour { Style::new().fg(colour) } else { Style::new() }
    }

    fn quiet(self) -> Style {
        self.style(Color::DarkGray).add_modifier(if self.has_colour {
            Modifier::empty()
        } else {
            Modifier::DIM
        })
    }
}

const HELP: [(&str, &str); 12] = [
    ("arrows, j k, PgUp PgDn", "move"),
    ("Enter", "open the process"),
    ("Esc", "back; empties the filter first"),
    ("Tab", "call sites, block sizes, counters"),
    ("s  i", "next order; the other way round"),
    ("/", "filter"),
    ("r", "record call sites, or end what was begun here"),
    ("p", "hold the picture"),
    ("+  -", "look more often, less often"),
    ("q, Ctrl-C", "quit; recordings begun here end"),
    ("pinned", "pages that stay because a few live blocks stand on them"),
    ("empty", "resident memory of slabs that no live block fills"),
];

pub fn draw(frame: &mut Frame, state: &State, looks: Looks) {
    let area = frame.area();
    let figures = if state.open.is_some() { 4 } else { 0 };
    let [title, top, tabs, table, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(figures.min(area.height.saturating_sub(5))),
        Constraint::Length(u16::from(state.open.is_some())),
        Constraint::Min(1),
        Constraint::Length(1),
    ])
    .areas(area);
    title_draw(frame, title, state, looks);
    match state.shown() {
        Some(seen) => {
            figures_draw(frame, top, seen, looks);
            tabs_draw(frame, tabs, state, looks);
            match state.panel {
                Panel::Sites => sites_draw(frame, table, state, seen, looks),
                Panel::Classes => classes_draw(frame, table, state, looks),
                Panel::Counters => counters_draw(frame, table, state, looks),
            }
        }
        None if state.has_ended => {
            say(frame, table, "The process has ended, or runs without hakmem now. q quits.")
        }
        None if state.open.is_some() => say(frame, table, "Looking at the process ..."),
        None => processes_draw(frame, table, state, looks),
    }
    keys_draw(frame, keys, state, looks);
    if state.is_help {
        help_draw(frame, area, looks);
    }
}

fn title_draw(frame: &mut Frame, area: Rect, state: &State, looks: Looks) {
    let bar = Style::new().add_modifier(Modifier::REVERSED);
    let left = match state.shown() {
        Some(seen) => format!(" hakmem top  {} {}", seen.name, seen.pid),
        None => format!(" hakmem top  {} with the library", said(state.seen.len(), "process", "processes")),
    };
    let right = match state.shown() {
        Some(seen) if seen.is_recording => {
            format!("records one in {}: {} samples ", bytes(seen.rate_bytes), count(seen.sample_count))
        }
        Some(_) => "does not record ".to_owned(),
        None => format!("every {} s ", state.interval_ms as f64 / 1000.0),
    };
    let held = if state.is_paused { "  HELD" } else { "" };
    let left = format!("{left}{held}");
    let gap = (area.width as usize).saturating_sub(left.chars().count() + right.chars().count());
    let right = if gap == 0 { String::new() } else { right };
    let line = format!("{left}{:gap$}{right}", "");
    frame.render_widget(Paragraph::new(line).style(bar.patch(looks.style(Color::Reset))), area);
}

fn said(number: usize, one: &str, many: &str) -> String {
    crate::text::counted(number as u64, one, many)
}

fn figures_draw(frame: &mut Frame, area: Rect, seen: &Seen, looks: Looks) {
    let lines: [Rect; 4] = Layout::vertical([Constraint::Length(1); 4]).areas(area);
    let strong = |text: String| Span::styled(text, Style::new().add_modifier(Modifier::BOLD));
    let rate = |value: f64| rounded(value as u64);
    let label = format!("Resident {:>10} ", bytes(seen.resident_bytes));
    let [left, right] =
        Layout::horizontal([Constraint::Length(label.len() as u16), Constraint::Min(0)]).areas(lines[0]);
    frame.render_widget(Paragraph::new(Line::from(strong(label))), left);
    frame.render_widget(Paragraph::new(memory_bar(seen, right.width, looks)), right);
    let mut second = vec![
        Span::raw("Live "),
        strong(bytes(seen.live_bytes)),
        Span::raw(format!(" in {} blocks  pinned ", rounded(seen.live_count))),
        strong(bytes(seen.pinned_bytes)),
    ];
    if let Some(free) = seen.free_bytes {
        second.push(Span::raw(format!("  free {}", bytes(free))));
    }
    second.push(Span::raw(format!("  {:.0}% empty", seen.fragmentation() * 100.0)));
    frame.render_widget(Paragraph::new(Line::from(second)), lines[1]);
    let mut third = Vec::new();
    if let Some(allocated) = seen.allocated_per_s {
        third.push(Span::raw("Allocates "));
        third.push(strong(format!("{}/s", bytes(allocated as u64))));
        third.push(Span::raw("   "));
    }
    third.push(Span::raw(format!(
        "visits {}/s   faults {}/s",
        rate(seen.visits_per_s),
        rate(seen.faults_per_s)
    )));
    if let Some(returned) = seen.returned_per_s {
        third.push(Span::raw(format!("   returns {}/s", bytes(returned as u64))));
    }
    frame.render_widget(Paragraph::new(Line::from(third)), lines[2]);
    if looks.has_unicode {
        // The last looks end at the right edge; the lowest is a thin line, so that changes are seen.
        let width = area.width.saturating_sub(9) as usize;
        let shown = &seen.history[seen.history.len().saturating_sub(width)..];
        let low = shown.iter().min().copied().unwrap_or(0);
        let high = shown.iter().max().copied().unwrap_or(0);
        let floor = low.saturating_sub((high - low) / 7 + 1);
        let data: Vec<u64> = shown.iter().map(|value| value - floor).collect();
        let [label, line] = Layout::horizontal([Constraint::Length(9), Constraint::Min(0)]).areas(lines[3]);
        frame.render_widget(Paragraph::new(Span::styled("resident", looks.quiet())), label);
        frame.render_widget(Sparkline::default().data(&data).style(looks.style(Color::Cyan)), line);
    }
}

/// Live #, pinned =, free and empty -, what is not the allocator's blank.
fn memory_bar(seen: &Seen, width: u16, looks: Looks) -> Line<'static> {
    let width = width.saturating_sub(2) as usize;
    let whole = seen.resident_bytes.max(seen.live_bytes).max(1);
    let cells = |part: u64| (percent(part, whole) / 100.0 * width as f64).round() as usize;
    let pinned = seen.pinned_bytes.min(seen.empty_bytes);
    let free = seen.empty_bytes - pinned;
    let mut left = width;
    let mut part = |bytes: u64, mark: &str, colour: Color| {
        let long = cells(bytes).min(left);
        left -= long;
        Span::styled(mark.repeat(long), looks.style(colour))
    };
    let parts = [
        part(seen.live_bytes, "#", Color::Blue),
        part(pinned, "=", Color::Red),
        part(free, "-", Color::Yellow),
    ];
    let mut spans = vec![Span::raw("[")];
    spans.extend(parts);
    spans.push(Span::raw(" ".repeat(left)));
    spans.push(Span::raw("]"));
    Line::from(spans)
}

fn tabs_draw(frame: &mut Frame, area: Rect, state: &State, looks: Looks) {
    let tab = |name: &'static str, panel: Panel| match state.panel == panel {
        true => Span::styled(format!("[{name}]"), Style::new().add_modifier(Modifier::BOLD)),
        false => Span::styled(format!(" {name} "), looks.quiet()),
    };
    let mut spans = vec![
        tab("Call sites", Panel::Sites),
        tab("Block sizes", Panel::Classes),
        tab("Counters", Panel::Counters),
        Span::styled("  # live = pinned - empty", looks.quiet()),
    ];
    if let Some(seen) = state.shown().filter(|seen| !seen.stage.is_empty()) {
        spans.push(Span::raw(format!("  policy {}", seen.stage)));
    }
    frame.render_widget(Paragraph::new(Line::from(spans)), area);
}

fn say(frame: &mut Frame, area: Rect, text: &str) {
    let lines = text.lines().count() as u16;
    let top = area.height.saturating_sub(lines) / 3;
    let area = Rect { y: area.y + top, height: area.height - top, ..area };
    frame.render_widget(Paragraph::new(text.to_owned()).alignment(Alignment::Center), area);
}

/// A table whose first columns are numbers, whose last takes what is left; `columns`: title, width.
fn table_draw(frame: &mut Frame, area: Rect, state: &State, columns: &[(&str, u16)], rows: Vec<Vec<String>>) {
    let (table, order) = state.order();
    let sorted = order.get(state.sort[table]).copied().unwrap_or_default();
    let last = columns.len() - 1;
    let heads = columns.iter().enumerate().map(|(at, (title, width))| {
        let mark = match (*title == sorted, state.is_reversed) {
            (true, false) => "*",
            (true, true) => "^",
            (false, _) => "",
        };
        let width = *width as usize;
        let text = format!("{title}{mark}");
        Cell::from(if at == last { text } else { format!("{text:>width$}") })
    });
    let constraints: Vec<Constraint> = columns
        .iter()
        .enumerate()
        .map(|(at, (_, width))| if at == last { Constraint::Min(*width) } else { Constraint::Length(*width) })
        .collect();
    let rows = rows.into_iter().map(|cells| {
        Row::new(cells.into_iter().zip(columns).enumerate().map(|(at, (text, (_, width)))| {
            let width = *width as usize;
            if at == last { text } else { format!("{text:>width$}") }
        }))
    });
    let table = Table::new(rows, constraints)
        .header(Row::new(heads).style(Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED)))
        .column_spacing(1)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut chosen = TableState::default().with_selected(Some(state.selected));
    frame.render_stateful_widget(table, area, &mut chosen);
}

pub const PROCESS_HEADS: [(&str, u16); 8] = [
    ("pid", 8),
    ("resident", 10),
    ("live", 10),
    ("pinned", 10),
    ("frag", 5),
    ("faults/s", 9),
    ("rec", 3),
    ("name", 10),
];

pub fn process_cells(seen: &Seen) -> Vec<String> {
    vec![
        seen.pid.to_string(),
        bytes(seen.resident_bytes),
        bytes(seen.live_bytes),
        bytes(seen.pinned_bytes),
        format!("{:.0}%", seen.fragmentation() * 100.0),
        rounded(seen.faults_per_s as u64),
        if seen.is_recording { "yes" } else { "" }.to_owned(),
        seen.name.clone(),
    ]
}

fn processes_draw(frame: &mut Frame, area: Rect, state: &State, _: Looks) {
    let rows = state.processes();
    if rows.is_empty() {
        let text = match state.seen.is_empty() {
            true => {
                "No process that you may look at runs with the library.\n\nhakmem run -- PROGRAM starts one."
            }
            false => "No process fits the filter.",
        };
        return say(frame, area, text);
    }
    table_draw(frame, area, state, &PROCESS_HEADS, rows.into_iter().map(process_cells).collect());
}

pub const SITE_HEADS: [(&str, u16); 6] =
    [("live", 10), ("blocks", 9), ("alloc/s", 12), ("temp", 4), ("pinned", 10), ("site", 20)];

pub fn site_cells(site: &SeenSite) -> Vec<String> {
    // A file and line; a module alone says little in a line that is short.
    let place = if site.place.contains(':') { format!("  {}", site.place) } else { String::new() };
    let caller = if site.caller.is_empty() { String::new() } else { format!("  from {}", site.caller) };
    vec![
        bytes(site.live_bytes),
        short(site.live_count),
        if site.allocated_per_s < 1.0 {
            "-".to_owned()
        } else {
            format!("{}/s", bytes(site.allocated_per_s as u64))
        },
        format!("{:.0}%", site.temporary_share.min(1.0) * 100.0),
        if site.pinned_bytes == 0 { "-".to_owned() } else { bytes(site.pinned_bytes) },
        format!("{}{place}{caller}", site.name),
    ]
}

/// 12,345; 1.23 M; 4.56 G.
fn short(number: u64) -> String {
    match number {
        0..1_000_000 => count(number),
        1_000_000..1_000_000_000 => format!("{:.2} M", number as f64 / 1e6),
        _ => format!("{:.2} G", number as f64 / 1e9),
    }
}

fn sites_draw(frame: &mut Frame, area: Rect, state: &State, seen: &Seen, _: Looks) {
    let rows = state.sites();
    if rows.is_empty() {
        let text = match (seen.sites.is_empty(), seen.is_recording) {
            (false, _) => "No call site fits the filter.",
            (true, true) => "No sample yet: one comes about every half megabyte that the program allocates.",
            (true, false) => {
                "Call sites are known while the process records.\n\nr begins a recording; it ends when you quit."
            }
        };
        return say(frame, area, text);
    }
    table_draw(frame, area, state, &SITE_HEADS, rows.into_iter().map(site_cells).collect());
}

pub const CLASS_HEADS: [(&str, u16); 7] =
    [("size", 8), ("slabs", 8), ("resident", 10), ("live", 10), ("pinned", 10), ("blocks", 9), ("used", 12)];

pub fn class_cells(class: &ClassCount) -> Vec<String> {
    let live = class.live_count.saturating_mul(class.block_bytes);
    let share = percent(live, class.resident_bytes.max(live));
    vec![
        count(class.block_bytes),
        count(class.slab_count),
        bytes(class.resident_bytes),
        bytes(live),
        bytes(class.sparse_bytes),
        short(class.live_count),
        format!("{share:>3.0}% {}", "#".repeat((share / 10.0).round() as usize)),
    ]
}

fn classes_draw(frame: &mut Frame, area: Rect, state: &State, _: Looks) {
    let rows = state.classes();
    if rows.is_empty() {
        return say(frame, area, "No block of 32 KiB or less lives.");
    }
    table_draw(frame, area, state, &CLASS_HEADS, rows.into_iter().map(class_cells).collect());
}

fn counters_draw(frame: &mut Frame, area: Rect, state: &State, _: Looks) {
    let rows = state.counters();
    if rows.is_empty() {
        return say(frame, area, "Nothing was counted yet.");
    }
    let rows = rows.into_iter().map(|(name, number)| {
        let row = crate::options::COUNTERS.iter().find(|row| row.name == name);
        vec![count(number), row.map_or("", |row| row.unit).to_owned(), name.to_owned()]
    });
    table_draw(frame, area, state, &[("count", 16), ("of", 8), ("name", 20)], rows.collect());
}

fn keys_draw(frame: &mut Frame, area: Rect, state: &State, looks: Looks) {
    let line = if state.is_typing {
        Line::from(format!("filter: {}_   Enter keeps it, Esc empties it", state.filter))
    } else if !state.message.is_empty() {
        Line::from(Span::styled(
            state.message.clone(),
            looks.style(Color::Yellow).add_modifier(Modifier::BOLD),
        ))
    } else {
        let filter =
            if state.filter.is_empty() { String::new() } else { format!("  filter: {}", state.filter) };
        let keys = match state.open {
            None => "q quit  ? help  Enter open  s order  i invert  / find  r record  p hold",
            Some(_) => "q quit  ? help  Esc back  Tab next  s order  i invert  / find  r record  p hold",
        };
        Line::from(Span::styled(format!("{keys}{filter}"), looks.quiet()))
    };
    frame.render_widget(Paragraph::new(line), area);
}

fn help_draw(frame: &mut Frame, area: Rect, looks: Looks) {
    let (width, height) = (area.width.min(78), area.height.min(HELP.len() as u16 + 2));
    let place = Rect { x: (area.width - width) / 2, y: (area.height - height) / 2, width, height };
    let lines = HELP.map(|(key, text)| {
        let key = Span::styled(format!(" {key:<23} "), Style::new().add_modifier(Modifier::BOLD));
        Line::from(vec![key, Span::raw(text)])
    });
    let block =
        Block::bordered().title(" Keys and words; any key closes ").border_style(looks.style(Color::Cyan));
    frame.render_widget(Clear, place);
    frame.render_widget(Paragraph::new(lines.to_vec()).block(block), place);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::state::tests::state;
    use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    const PLAIN: Looks = Looks { has_colour: false, has_unicode: true };

    fn drawn(state: &State, width: u16, height: u16, looks: Looks) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, state, looks)).unwrap();
        let buffer = terminal.backend().buffer();
        let row = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..height).map(|y| row(y).trim_end().to_owned() + "\n").collect()
    }

    fn press(state: &mut State, code: KeyCode) {
        state.key(KeyEvent::new(code, KeyModifiers::NONE));
    }

    #[test]
    fn the_list_fits_80_columns() {
        let text = drawn(&state(), 80, 24, PLAIN);
        assert!(text.starts_with(" hakmem top  3 processes with the library"), "{text}");
        for wanted in ["resident*", "900.0 MiB", "redis-server", "22%", "q quit", "p hold"] {
            assert!(text.contains(wanted), "{wanted} is not in\n{text}");
        }
    }

    #[test]
    fn a_process_fits_80_by_24() {
        let mut state = state();
        press(&mut state, KeyCode::Enter);
        let text = drawn(&state, 80, 24, PLAIN);
        for wanted in [
            "redis-server 4711",
            "1,800 samples",
            "[####",
            "Allocates 47.7 MiB/s",
            "[Call sites]",
            "live*",
            "dictAdd  dictAdd.c:12",
            "p hold",
        ] {
            assert!(text.contains(wanted), "{wanted} is not in\n{text}");
        }
        press(&mut state, KeyCode::Tab);
        let text = drawn(&state, 80, 24, PLAIN);
        assert!(text.contains("[Block sizes]") && text.contains("4,096"), "{text}");
        press(&mut state, KeyCode::Tab);
        let text = drawn(&state, 80, 24, PLAIN);
        assert!(text.contains("visit_next_word") && !text.contains("visit_dead"), "{text}");
    }

    #[test]
    fn without_colours_there_are_none_and_nothing_is_missing() {
        let mut state = state();
        press(&mut state, KeyCode::Enter);
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
        terminal.draw(|frame| draw(frame, &state, PLAIN)).unwrap();
        assert!(terminal.backend().buffer().content().iter().all(|cell| cell.fg == Color::Reset));
        let coloured = drawn(&state, 80, 24, Looks { has_colour: true, has_unicode: true });
        assert_eq!(coloured, drawn(&state, 80, 24, PLAIN));
    }

    #[test]
    fn any_size_is_drawn() {
        let mut state = state();
        for is_open in [false, true] {
            for (width, height) in [(1, 1), (3, 2), (20, 5), (79, 7), (300, 100)] {
                for is_help in [false, true] {
                    state.is_help = is_help;
                    drawn(&state, width, height, PLAIN);
                    drawn(&state, width, height, Looks { has_colour: true, has_unicode: false });
                }
            }
            state.is_help = false;
            if !is_open {
                press(&mut state, KeyCode::Enter);
            }
        }
    }

    #[test]
    fn what_is_not_known_is_said() {
        let mut state = State::new(None, "", 1000);
        assert!(drawn(&state, 80, 24, PLAIN).contains("hakmem run -- PROGRAM"));
        state.renew(vec![Seen { pid: 7, ..Seen::default() }]);
        press(&mut state, KeyCode::Enter);
        assert!(drawn(&state, 80, 24, PLAIN).contains("r begins a recording"));
    }
}
