//! timeline.rs - the process over time as lines of a plot: points in a box of 1000 by 100, and the axes' marks.

use super::words::duration_us;
use crate::profile::model::{Moment, Profile};
use crate::text::bytes;
use serde::Serialize;

/// More moments than the plot has columns show nothing more.
const POINTS_MAX: usize = 1000;
const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 100.0;

#[derive(Debug, Serialize)]
pub struct Timeline {
    pub lines: Vec<Line>,
    pub y_ticks: Vec<Tick>,
    pub x_ticks: Vec<Tick>,
    /// For the script: what stands at a moment.
    pub moments: Vec<[u64; 6]>, // ms, resident, live, free, allocated and faults per second
    pub rates: Vec<Line>,
    pub rate_max: String,
    pub spoken: String,
}

#[derive(Debug, Serialize)]
pub struct Line {
    pub name: &'static str,
    pub class: &'static str,
    pub path: String,
    pub area: String,
}

#[derive(Debug, Serialize)]
pub struct Tick {
    pub at: f64, // percent
    pub label: String,
}

type Series = (&'static str, &'static str, fn(&Moment) -> u64);
const SERIES: [Series; 3] = [
    ("resident", "resident", |moment| moment.resident_bytes),
    ("live", "live", |moment| moment.live_bytes),
    ("free, but resident", "free", |moment| moment.free_bytes),
];

pub fn timeline(profile: &Profile) -> Option<Timeline> {
    let step = profile.timeline.len().div_ceil(POINTS_MAX).max(1);
    let last = profile.timeline.len().saturating_sub(1);
    let kept = |index: usize| index % step == 0 || index == last;
    let moments: Vec<Moment> =
        profile.timeline.iter().enumerate().filter(|(index, _)| kept(*index)).map(|(_, at)| *at).collect();
    // A program that allocates nothing makes no moments; what was, stays.
    let mut moments = moments;
    if let Some(last) =
        moments.last().copied().filter(|last| last.at_ms.saturating_add(1000) < profile.recording.duration_ms)
    {
        moments.push(Moment { at_ms: profile.recording.duration_ms, ..last });
    }
    let (first, end) = (moments.first()?.at_ms, moments.last()?.at_ms);
    if end <= first {
        return None;
    }
    let x = |at: u64| (at - first) as f64 / (end - first) as f64 * WIDTH;
    let largest = moments.iter().flat_map(|at| SERIES.map(|(_, _, value)| value(at))).max().unwrap_or(0);
    let (top, step) = scale(largest);
    let y = |value: u64| HEIGHT - value.min(top) as f64 / top as f64 * HEIGHT;
    let lines = SERIES.map(|(name, class, value)| {
        let points: Vec<(f64, f64)> = moments.iter().map(|at| (x(at.at_ms), y(value(at)))).collect();
        line(name, class, &points)
    });

    let rates: Vec<[u64; 2]> = moments
        .windows(2)
        .map(|pair| {
            let ms = (pair[1].at_ms - pair[0].at_ms).max(1);
            let rate = |value: fn(&Moment) -> u64| {
                value(&pair[1]).saturating_sub(value(&pair[0])).saturating_mul(1000) / ms
            };
            [rate(|at| at.allocated_bytes), rate(|at| at.fault_count)]
        })
        .collect();
    let rate_max = rates.iter().map(|rate| rate[0]).max().unwrap_or(0);
    let rate_points: Vec<(f64, f64)> = rates
        .iter()
        .enumerate()
        .map(|(at, rate)| {
            (x(moments[at + 1].at_ms), HEIGHT - rate[0] as f64 / rate_max.max(1) as f64 * HEIGHT * 0.9)
        })
        .collect();
    let ends =
        |value: fn(&Moment) -> u64| (bytes(value(&moments[0])), bytes(value(&moments[moments.len() - 1])));
    let (resident, live) = (ends(|at| at.resident_bytes), ends(|at| at.live_bytes));
    Some(Timeline {
        lines: lines.into(),
        y_ticks: (0..=top / step)
            .map(|tick| Tick {
                at: 100.0 - (tick * step) as f64 / top as f64 * 100.0,
                label: bytes_short(tick * step),
            })
            .collect(),
        x_ticks: (0..=4)
            .map(|part| Tick {
                at: part as f64 * 25.0,
                label: match (first + (end - first) / 4 * part).saturating_mul(1000) {
                    0 => "0".to_owned(),
                    us => duration_us(us),
                },
            })
            .collect(),
        moments: moments
            .iter()
            .enumerate()
            .map(|(index, at)| {
                let [calls, faults] = if index == 0 { [0, 0] } else { rates[index - 1] };
                [at.at_ms, at.resident_bytes, at.live_bytes, at.free_bytes, calls, faults]
            })
            .collect(),
        rates: if rate_max > 0 {
            vec![line("allocated per second", "rate", &rate_points)]
        } else {
            Vec::new()
        },
        rate_max: bytes(rate_max),
        spoken: format!(
            "Over {}: resident from {} to {}, live from {} to {}",
            duration_us((end - first).saturating_mul(1000)),
            resident.0,
            resident.1,
            live.0,
            live.1
        ),
    })
}

fn line(name: &'static str, class: &'static str, points: &[(f64, f64)]) -> Line {
    use std::fmt::Write;
    let mut path = String::with_capacity(points.len() * 12);
    for (at, (x, y)) in points.iter().enumerate() {
        let _ = write!(path, "{}{x:.1} {y:.2}", if at == 0 { "M" } else { "L" });
    }
    let area = match (points.first(), points.last()) {
        (Some(first), Some(last)) => format!("{path}L{:.1} {HEIGHT}L{:.1} {HEIGHT}Z", last.0, first.0),
        _ => String::new(),
    };
    Line { name, class, path, area }
}

/// The axis's end and the distance of its marks: powers of two and five quarters of them, three to six marks.
fn scale(largest: u64) -> (u64, u64) {
    // A file may say anything: what no machine has is drawn at the top.
    let largest = largest.min(1 << 60);
    let mut step = 1024;
    while step * 5 < largest {
        step *= 2;
    }
    (largest.div_ceil(step).max(1) * step, step)
}

/// 64 MiB: the marks are whole.
fn bytes_short(number: u64) -> String {
    bytes(number).replace(".0 ", " ").replace("0 bytes", "0")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn the_plot_stays_in_its_box() {
        let timeline = timeline(&sample::profile()).unwrap();
        assert_eq!(timeline.lines.len(), 3);
        for line in timeline.lines.iter().chain(&timeline.rates) {
            for point in line.path.split(['M', 'L']).skip(1) {
                let (x, y) = point.split_once(' ').unwrap();
                let (x, y): (f64, f64) = (x.parse().unwrap(), y.parse().unwrap());
                assert!((0.0..=WIDTH).contains(&x) && (0.0..=HEIGHT).contains(&y), "{} {point}", line.name);
            }
        }
        assert!((4..=6).contains(&timeline.y_ticks.len()), "{:?}", timeline.y_ticks);
    }

    #[test]
    fn marks_are_whole_and_few() {
        assert!(scale(u64::MAX).0 <= 1 << 61);
        for largest in [0, 1, 1024, 5000, 100 << 20, (3 << 30) + 1, 1 << 50] {
            let (top, step) = scale(largest);
            assert!(top >= largest && top / step <= 6 && top % step == 0, "{largest}: {top} by {step}");
        }
    }

    #[test]
    fn silence_at_the_end_is_a_part_of_the_plot() {
        let mut profile = sample::profile();
        profile.timeline.truncate(100);
        let timeline = timeline(&profile).unwrap();
        assert_eq!(timeline.moments.last().map(|at| at[0]), Some(30_000));
        assert_eq!(timeline.moments.last().map(|at| at[4]), Some(0));
    }

    #[test]
    fn one_moment_is_no_line() {
        let mut profile = sample::profile();
        profile.timeline.truncate(1);
        profile.recording.duration_ms = 0;
        assert!(timeline(&profile).is_none());
        profile.timeline.clear();
        assert!(timeline(&profile).is_none());
    }
}
