//! lists.rs - `--list` and `--peers`: what there is, before anything is measured.

use super::peers::Known;
use super::results::{Size, Time};
use super::suite::{self, SuiteRow};
use crate::text;
use std::time::Duration;

pub fn rows_print(rows: &[SuiteRow], size: Size, budget: Duration) {
    let width = rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
    for row in rows {
        let time = if row.time == Time::Cpu { "cpu " } else { "wall" };
        println!("{:<width$}  {time}  {}", row.name, row.about);
        println!(
            "{:<width$}        {} {}  [{}]",
            "",
            row.program(),
            row.arguments(size).join(" "),
            row.profiles.join(" ")
        );
    }
    let count = u32::try_from(rows.len()).unwrap_or(u32::MAX).max(1);
    println!(
        "\n{}, profiles {}; at most {} altogether, about {:.0} s a row, {}",
        text::counted(rows.len() as u64, "row", "rows"),
        suite::profiles(rows).join(" "),
        minutes(budget),
        (budget / count).as_secs_f64(),
        match size {
            Size::Quick => "with the arguments of --quick",
            Size::Full => "with the arguments of --full",
        }
    );
}

fn minutes(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds => format!("{} min", seconds.div_ceil(60)),
    }
}

pub fn peers_print(all: &[Known]) {
    let width = all.iter().map(|known| known.name.len()).max().unwrap_or(0);
    let versions = all.iter().map(|known| known.version.len()).max().unwrap_or(0);
    for known in all {
        let mode = known.mode.as_ref().map_or(String::new(), |mode| format!(", {mode}"));
        let what = match (&known.missing, known.preload.first()) {
            (Some(how), _) => format!("missing: {how}"),
            (None, Some(path)) => {
                let only = known.only_named.map_or(String::new(), |why| format!("; {why}"));
                format!("{}  ({}{mode}{only})", path.display(), known.source)
            }
            (None, None) => format!("({})", known.source),
        };
        println!("{:<width$}  {:<versions$}  {what}", known.name, known.version);
    }
}
