//! plain.rs - `hakmem top --once`: the same figures as text, for scripts, pipes and eyes without a screen.

use super::look::Seen;
use super::screen::{CLASS_HEADS, PROCESS_HEADS, SITE_HEADS, class_cells, process_cells, site_cells};
use super::state::State;
use crate::report::words::rounded;
use crate::text::bytes;

const ROWS_MAX: usize = 40;

pub fn text(state: &State) -> String {
    match state.shown() {
        Some(seen) => process_text(state, seen),
        None => table(&PROCESS_HEADS, state.processes().into_iter().map(process_cells).collect()),
    }
}

fn process_text(state: &State, seen: &Seen) -> String {
    let mut text = format!("{} {}, library {}\n", seen.name, seen.pid, seen.library);
    let mut line = |name: &str, value: String| text += &format!("  {name:<10} {value}\n");
    line("resident", bytes(seen.resident_bytes));
    line("live", format!("{} in {} blocks", bytes(seen.live_bytes), rounded(seen.live_count)));
    line("pinned", bytes(seen.pinned_bytes));
    line("empty", format!("{:.1}% of {} in slabs", seen.fragmentation() * 100.0, bytes(seen.slab_bytes)));
    if let Some(free) = seen.free_bytes {
        line("free", bytes(free));
    }
    if let Some(allocated) = seen.allocated_per_s {
        line("allocates", format!("{}/s", bytes(allocated as u64)));
    }
    line("faults", format!("{}/s", rounded(seen.faults_per_s as u64)));
    line("visits", format!("{}/s", rounded(seen.visits_per_s as u64)));
    if !seen.stage.is_empty() {
        line("policy", seen.stage.clone());
    }
    line(
        "recording",
        match (seen.is_recording, seen.lost_count) {
            (false, _) => "no".to_owned(),
            (true, 0) => format!("one in {}, {} samples", bytes(seen.rate_bytes), rounded(seen.sample_count)),
            (true, lost) => format!(
                "one in {}, {} samples, {} lost",
                bytes(seen.rate_bytes),
                rounded(seen.sample_count),
                rounded(lost)
            ),
        },
    );
    if !seen.sites.is_empty() {
        text += &format!("\n{}", table(&SITE_HEADS, state.sites().into_iter().map(site_cells).collect()));
    }
    text + &format!("\n{}", table(&CLASS_HEADS, state.classes().into_iter().map(class_cells).collect()))
}

/// Numbers to the right, the last column as it is.
fn table(heads: &[(&str, u16)], rows: Vec<Vec<String>>) -> String {
    let heads = heads.iter().map(|(head, _)| (*head).to_owned()).collect();
    let lines: Vec<Vec<String>> = std::iter::once(heads).chain(rows.into_iter().take(ROWS_MAX)).collect();
    let widths: Vec<usize> = (0..lines[0].len())
        .map(|column| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0))
        .collect();
    let mut text = String::new();
    for line in &lines {
        let last = line.len() - 1;
        let cells = line.iter().zip(&widths).enumerate().map(|(at, (cell, width))| match at == last {
            true => cell.clone(),
            false => format!("{cell:>width$}"),
        });
        text += &(cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::state::tests::state;

    #[test]
    fn the_list_is_a_table() {
        let text = text(&state());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4);
        assert!(lines[0].trim_start().starts_with("pid") && lines[0].ends_with("name"));
        assert!(lines[1].ends_with("redis-server") && lines[1].contains("900.0 MiB"));
    }

    #[test]
    fn a_process_is_said_whole() {
        let mut state = state();
        state.open = Some(4711);
        let text = text(&state);
        for wanted in [
            "redis-server 4711, library 0.1.0",
            "in 716,000 blocks",
            "dictAdd  dictAdd.c:12  from main",
            "4,096",
        ] {
            assert!(text.contains(wanted), "{wanted} is not in\n{text}");
        }
        assert!(text.is_ascii() && !text.contains('\u{1b}'));
    }
}
