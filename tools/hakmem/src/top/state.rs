//! state.rs - what the screen shows and what keys change: no terminal, no process is known here.

use super::look::{Seen, SeenSite};
use crate::recording::pages::ClassCount;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Panel {
    Sites,
    Classes,
    Counters,
}

/// What a key asks of others.
#[derive(Debug, PartialEq)]
pub enum Ask {
    Nothing,
    Quit,
    /// Look now: something else is to be shown.
    Look,
    Record(u32, bool),
    Interval(i32),
}

/// Columns by which a table can be sorted; the first is where it begins.
pub const PROCESS_COLUMNS: [&str; 7] = ["resident", "live", "pinned", "frag", "faults/s", "name", "pid"];
pub const SITE_COLUMNS: [&str; 5] = ["live", "alloc/s", "pinned", "allocated", "site"];
pub const CLASS_COLUMNS: [&str; 4] = ["resident", "live", "pinned", "size"];

#[derive(Debug)]
pub struct State {
    pub seen: Vec<Seen>,
    /// The process that is shown; None: the list.
    pub open: Option<u32>,
    /// Named on the command line: there is no list to go back to.
    pub is_only: bool,
    pub panel: Panel,
    pub selected: usize,
    pub sort: [usize; 3], // of processes, sites, classes
    pub is_reversed: bool,
    pub filter: String,
    pub is_typing: bool,
    pub is_help: bool,
    pub is_paused: bool,
    pub has_ended: bool, // the only one
    pub message: String,
    message_age: u32, // in looks
    pub interval_ms: u64,
}

impl State {
    pub fn new(open: Option<u32>, filter: &str, interval_ms: u64) -> State {
        State {
            seen: Vec::new(),
            open,
            is_only: open.is_some(),
            panel: Panel::Sites,
            selected: 0,
            sort: [0; 3],
            is_reversed: false,
            filter: filter.to_owned(),
            is_typing: false,
            is_help: false,
            is_paused: false,
            has_ended: false,
            message: String::new(),
            message_age: 0,
            interval_ms,
        }
    }

    pub fn shown(&self) -> Option<&Seen> {
        self.seen.iter().find(|seen| Some(seen.pid) == self.open)
    }

    fn fits(&self, text: &str) -> bool {
        text.to_lowercase().contains(&self.filter.to_lowercase())
    }

    pub fn processes(&self) -> Vec<&Seen> {
        let mut rows: Vec<&Seen> =
            self.seen.iter().filter(|seen| self.fits(&format!("{} {}", seen.pid, seen.name))).collect();
        let down = |a: f64, b: f64| b.total_cmp(&a);
        rows.sort_by(|a, b| match PROCESS_COLUMNS[self.sort[0]] {
            "live" => b.live_bytes.cmp(&a.live_bytes),
            "pinned" => b.pinned_bytes.cmp(&a.pinned_bytes),
            "frag" => down(a.fragmentation(), b.fragmentation()),
            "faults/s" => down(a.faults_per_s, b.faults_per_s),
            "name" => a.name.cmp(&b.name),
            "pid" => a.pid.cmp(&b.pid),
            _ => b.resident_bytes.cmp(&a.resident_bytes),
        });
        self.turned(rows)
    }

    pub fn sites(&self) -> Vec<&SeenSite> {
        let Some(seen) = self.shown() else { return Vec::new() };
        let mut rows: Vec<&SeenSite> = seen
            .sites
            .iter()
            .filter(|site| self.fits(&format!("{} {} {}", site.name, site.place, site.caller)))
            .collect();
        rows.sort_by(|a, b| match SITE_COLUMNS[self.sort[1]] {
            "alloc/s" => b.allocated_per_s.total_cmp(&a.allocated_per_s),
            "pinned" => b.pinned_bytes.cmp(&a.pinned_bytes),
            "allocated" => b.allocated_bytes.cmp(&a.allocated_bytes),
            "site" => a.name.cmp(&b.name),
            _ => b.live_bytes.cmp(&a.live_bytes),
        });
        self.turned(rows)
    }

    pub fn classes(&self) -> Vec<&ClassCount> {
        let Some(seen) = self.shown() else { return Vec::new() };
        let mut rows: Vec<&ClassCount> =
            seen.classes.iter().filter(|class| self.fits(&class.block_bytes.to_string())).collect();
        let live = |class: &ClassCount| class.live_count.saturating_mul(class.block_bytes);
        rows.sort_by(|a, b| match CLASS_COLUMNS[self.sort[2]] {
            "live" => live(b).cmp(&live(a)),
            "pinned" => b.sparse_bytes.cmp(&a.sparse_bytes),
            "size" => a.block_bytes.cmp(&b.block_bytes),
            _ => b.resident_bytes.cmp(&a.resident_bytes),
        });
        self.turned(rows)
    }

    pub fn counters(&self) -> Vec<(&str, u64)> {
        let Some(seen) = self.shown() else { return Vec::new() };
        let used = seen.counters.iter().filter(|(name, count)| *count > 0 && self.fits(name));
        used.map(|(name, count)| (name.as_str(), *count)).collect()
    }

    fn turned<Row>(&self, mut rows: Vec<Row>) -> Vec<Row> {
        if self.is_reversed {
            rows.reverse();
        }
        rows
    }

    pub fn row_count(&self) -> usize {
        match (self.open, self.panel) {
            (None, _) => self.processes().len(),
            (_, Panel::Sites) => self.sites().len(),
            (_, Panel::Classes) => self.classes().len(),
            (_, Panel::Counters) => self.counters().len(),
        }
    }

    /// Which table's order the keys change, and its columns.
    pub fn order(&self) -> (usize, &'static [&'static str]) {
        match (self.open, self.panel) {
            (None, _) => (0, &PROCESS_COLUMNS),
            (_, Panel::Sites) => (1, &SITE_COLUMNS),
            (_, Panel::Classes) => (2, &CLASS_COLUMNS),
            (_, Panel::Counters) => (2, &[]),
        }
    }

    pub fn renew(&mut self, seen: Vec<Seen>) {
        const MESSAGE_AGE_MAX: u32 = 5;
        self.message_age += 1;
        if self.message_age > MESSAGE_AGE_MAX {
            self.message.clear();
        }
        let was_shown = self.shown().is_some();
        if !self.is_paused {
            self.seen = seen;
        }
        if let (Some(pid), true, None) = (self.open, was_shown, self.shown()) {
            self.say(format!("process {pid} has ended, or runs without hakmem now"));
            self.has_ended = self.is_only;
            self.open = self.open.filter(|_| self.is_only);
        }
        self.selected = self.selected.min(self.row_count().saturating_sub(1));
    }

    pub fn say(&mut self, message: String) {
        self.message = message;
        self.message_age = 0;
    }

    pub fn key(&mut self, key: KeyEvent) -> Ask {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        if is_control && key.code == KeyCode::Char('c') {
            return Ask::Quit;
        }
        self.message.clear();
        if self.is_typing {
            self.type_key(key.code);
            return Ask::Nothing;
        }
        if self.is_help {
            self.is_help = false;
            return Ask::Nothing;
        }
        let last = self.row_count().saturating_sub(1);
        match key.code {
            KeyCode::Char('q') => return Ask::Quit,
            KeyCode::Esc | KeyCode::Backspace | KeyCode::Left => return self.back(),
            KeyCode::Up | KeyCode::Char('k') => self.selected = self.selected.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.selected = (self.selected + 1).min(last),
            KeyCode::PageUp => self.selected = self.selected.saturating_sub(10),
            KeyCode::PageDown => self.selected = (self.selected + 10).min(last),
            KeyCode::Home | KeyCode::Char('g') => self.selected = 0,
            KeyCode::End | KeyCode::Char('G') => self.selected = last,
            KeyCode::Enter | KeyCode::Right => return self.enter(),
            KeyCode::Tab | KeyCode::BackTab => self.panel_next(),
            KeyCode::Char('s' | 'S') => self.sort_next(),
            KeyCode::Char('i') => self.is_reversed = !self.is_reversed,
            KeyCode::Char('/') => self.is_typing = true,
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.is_help = true,
            KeyCode::Char('p' | ' ') => self.is_paused = !self.is_paused,
            KeyCode::Char('r') => return self.record(),
            KeyCode::Char('+') => return Ask::Interval(-1),
            KeyCode::Char('-') => return Ask::Interval(1),
            _ => {}
        }
        Ask::Nothing
    }

    fn type_key(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.is_typing = false,
            KeyCode::Esc => {
                self.is_typing = false;
                self.filter.clear();
            }
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Char(typed) if !typed.is_control() && self.filter.chars().count() < 60 => {
                self.filter.push(typed);
            }
            _ => {}
        }
        self.selected = 0;
    }

    fn back(&mut self) -> Ask {
        if !self.filter.is_empty() {
            self.filter.clear();
            return Ask::Nothing;
        }
        if self.open.is_none() || self.is_only {
            return Ask::Nothing;
        }
        let pid = self.open.take();
        let at = self.processes().iter().position(|seen| Some(seen.pid) == pid);
        self.selected = at.unwrap_or(0);
        Ask::Look
    }

    fn enter(&mut self) -> Ask {
        if self.open.is_some() {
            return Ask::Nothing;
        }
        let Some(pid) = self.processes().get(self.selected).map(|seen| seen.pid) else { return Ask::Nothing };
        self.open = Some(pid);
        self.filter.clear();
        self.selected = 0;
        self.is_reversed = false;
        Ask::Look
    }

    fn panel_next(&mut self) {
        self.panel = match self.panel {
            Panel::Sites => Panel::Classes,
            Panel::Classes => Panel::Counters,
            Panel::Counters => Panel::Sites,
        };
        self.selected = 0;
    }

    fn sort_next(&mut self) {
        let (table, columns) = self.order();
        if !columns.is_empty() {
            self.sort[table] = (self.sort[table] + 1) % columns.len();
            self.selected = 0;
        }
    }

    fn record(&mut self) -> Ask {
        let chosen = match self.open {
            Some(_) => self.shown(),
            None => self.processes().get(self.selected).copied(),
        };
        chosen.map_or(Ask::Nothing, |seen| Ask::Record(seen.pid, !seen.is_recording))
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn state() -> State {
        let seen = |pid: u32, name: &str, resident: u64, live: u64| Seen {
            pid,
            name: name.to_owned(),
            library: "0.1.0".to_owned(),
            resident_bytes: resident << 20,
            live_bytes: live << 20,
            live_count: live << 10,
            slab_bytes: resident << 20,
            empty_bytes: (resident - live) << 20,
            pinned_bytes: (resident - live) << 19,
            faults_per_s: 1234.0,
            history: (0..100).map(|at| (resident << 20) - (at % 10 << 18)).collect(),
            classes: [64, 256, 4096]
                .map(|bytes| ClassCount {
                    block_bytes: bytes,
                    slab_count: 9,
                    capacity_count: 9000,
                    live_count: 4000,
                    resident_bytes: bytes << 14,
                    sparse_page_count: 30,
                    sparse_bytes: 100_000,
                })
                .into(),
            counters: vec![("visit_next_word".to_owned(), 700), ("visit_dead".to_owned(), 0)],
            ..Seen::default()
        };
        let mut state = State::new(None, "", 1000);
        let mut redis = seen(4711, "redis-server", 900, 700);
        redis.is_recording = true;
        redis.rate_bytes = 512 << 10;
        redis.sample_count = 1800;
        redis.allocated_per_s = Some(50e6);
        redis.free_bytes = Some(40 << 20);
        redis.sites = [("dictAdd", 600), ("sdsnewlen<T>", 90), ("createObject", 10)]
            .map(|(name, live)| SeenSite {
                name: name.to_owned(),
                place: format!("{name}.c:12"),
                caller: "main".to_owned(),
                live_bytes: live << 20,
                live_count: live << 9,
                allocated_bytes: (1000 - live) << 20,
                allocated_per_s: live as f64 * 1e5,
                pinned_bytes: live << 14,
                temporary_share: 0.25,
            })
            .into();
        state.renew(vec![seen(12, "python3", 50, 40), redis, seen(99, "node", 300, 100)]);
        state
    }

    fn press(state: &mut State, code: KeyCode) -> Ask {
        state.key(KeyEvent::new(code, KeyModifiers::NONE))
    }

    fn names(state: &State) -> Vec<&str> {
        state.processes().iter().map(|seen| seen.name.as_str()).collect()
    }

    #[test]
    fn the_largest_stands_first_and_any_column_may_order() {
        let mut state = state();
        assert_eq!(names(&state), ["redis-server", "node", "python3"]);
        while PROCESS_COLUMNS[state.sort[0]] != "name" {
            press(&mut state, KeyCode::Char('s'));
        }
        assert_eq!(names(&state), ["node", "python3", "redis-server"]);
        press(&mut state, KeyCode::Char('i'));
        assert_eq!(names(&state), ["redis-server", "python3", "node"]);
    }

    #[test]
    fn a_process_opens_and_closes_again() {
        let mut state = state();
        press(&mut state, KeyCode::Down);
        assert_eq!(press(&mut state, KeyCode::Enter), Ask::Look);
        assert_eq!(state.open, Some(99));
        assert_eq!(press(&mut state, KeyCode::Char('r')), Ask::Record(99, true));
        assert_eq!(press(&mut state, KeyCode::Esc), Ask::Look);
        assert_eq!((state.open, state.selected), (None, 1));
        assert_eq!(press(&mut state, KeyCode::Up), Ask::Nothing);
        assert_eq!(press(&mut state, KeyCode::Char('r')), Ask::Record(4711, false));
    }

    #[test]
    fn what_is_typed_filters() {
        let mut state = state();
        press(&mut state, KeyCode::Char('/'));
        for typed in "PYqh".chars() {
            press(&mut state, KeyCode::Char(typed));
        }
        assert!(names(&state).is_empty());
        press(&mut state, KeyCode::Backspace);
        press(&mut state, KeyCode::Backspace);
        press(&mut state, KeyCode::Enter);
        assert_eq!(names(&state), ["python3"]);
        assert_eq!(press(&mut state, KeyCode::Esc), Ask::Nothing);
        assert_eq!(names(&state).len(), 3);
    }

    #[test]
    fn a_process_that_ended_gives_way_to_the_list() {
        let mut state = state();
        press(&mut state, KeyCode::Enter);
        let left = state.seen.iter().filter(|seen| seen.pid != 4711).cloned().collect();
        state.renew(left);
        assert_eq!(state.open, None);
        assert_eq!(state.message, "process 4711 has ended, or runs without hakmem now");
    }

    #[test]
    fn control_c_ends_it_wherever_it_is() {
        let mut state = state();
        press(&mut state, KeyCode::Char('/'));
        let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(state.key(control_c), Ask::Quit);
    }

    #[test]
    fn the_selection_stays_in_the_table() {
        let mut state = state();
        press(&mut state, KeyCode::End);
        assert_eq!(state.selected, 2);
        press(&mut state, KeyCode::Down);
        assert_eq!(state.selected, 2);
        let first = state.seen[..1].to_vec();
        state.renew(first);
        assert_eq!(state.selected, 0);
    }
}
